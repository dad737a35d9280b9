"""A gateway and a worker in the test's process, and the spans that both create; the engine is a separate process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import httpx
import pytest
import pytest_asyncio
import redis.asyncio
import uvicorn
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from api.server import build_gateway, gateway_protocol
from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from gpuworker.worker import Worker
from shared import consumer
from shared.messages import Heartbeat
from shared.process.tracing import create_tracing
from shared.process.tracing.tracer_provider import create_bare_provider
from shared.queue_connections import QueueConnections
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.integration.queue.actors import Gateway as Actor
from tests.integration.worker.worker_cluster import WorkerCluster
from tests.processes import Processes
from tests.waiting import wait_until

READY_S = 30.0


@dataclass
class TracedCluster:
    """A queue with a gateway and a worker, an HTTP client, and all spans that have ended."""

    queue: str
    client: httpx.AsyncClient
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def named(self, name: str) -> list[ReadableSpan]:
        """Returns the ended spans with a name, in the order of their ends; `{}` in the name means the queue."""
        full_name = name.replace("{}", self.queue)
        return [each for each in self.exporter.get_finished_spans() if each.name == full_name]

    async def wait_until_named(self, name: str, n: int = 1) -> list[ReadableSpan]:
        """Waits until at least `n` spans with a name have ended, and returns them."""
        await wait_until(lambda: len(self.named(name)) >= n, f"{n} spans {name} have ended")
        return self.named(name)

    def children(self, parent: ReadableSpan) -> dict[str, ReadableSpan]:
        """Returns the children of a span, by name."""
        spans = [each for each in self.exporter.get_finished_spans() if each.parent is not None]
        return {each.name: each for each in spans if each.parent == parent.get_span_context()}

    def provider(self, process: str) -> TracerProvider:
        """Returns a provider that creates the spans of a process and stores them in the exporter."""
        provider = create_bare_provider(process)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        return provider


StartTraced = Callable[..., Awaitable[TracedCluster]]


@asynccontextmanager
async def gateway(traced: TracedCluster, listen: socket.socket, settings: GatewaySettings) -> AsyncIterator[None]:
    """Runs a gateway on a listening socket while the block runs."""
    connections = QueueConnections(settings, settings.initial_queue, "gateway:traced")
    _, app = build_gateway(settings, [connections], None, create_tracing(traced.provider("gateway")))
    protocol = cast("type[asyncio.Protocol]", gateway_protocol(settings))
    server = uvicorn.Server(uvicorn.Config(app, http=protocol, ws="none", lifespan="on", log_config=None))
    serving = asyncio.create_task(server.serve(sockets=[listen]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving
        await connections.close()


@asynccontextmanager
async def worker(traced: TracedCluster, settings: WorkerSettings) -> AsyncIterator[None]:
    """Runs a worker while the block runs; it must end with exit code 0."""
    stop = asyncio.Event()
    tracing = create_tracing(traced.provider("worker"))
    working = asyncio.create_task(Worker(settings, "worker-traced", [], stop, tracing).run())
    try:
        yield
    finally:
        stop.set()
        assert await working == 0


@pytest_asyncio.fixture
async def start_traced(redis_url: str, queue_name: str) -> AsyncIterator[StartTraced]:
    """Starts a gateway and a worker with settings for each, and returns them when the gateway is ready."""
    async with AsyncExitStack() as stack:

        async def start_one(
            gateway_settings: dict[str, object] | None = None, **worker_settings: object
        ) -> TracedCluster:
            common = {"redis_url": redis_url, "queue": queue_name}
            listen = socket.create_server(("127.0.0.1", 0))
            port = listen.getsockname()[1]
            client = await stack.enter_async_context(plain_http.client(base_url=f"http://127.0.0.1:{port}"))
            traced = TracedCluster(queue_name, client)
            working = WorkerSettings.model_validate(common | {"model": "null", "device": "cpu"} | worker_settings)
            await stack.enter_async_context(worker(traced, working))
            serving = GatewaySettings.model_validate(common | {"all_queues": False} | (gateway_settings or {}))
            await stack.enter_async_context(gateway(traced, listen, serving))

            async def ready() -> bool:
                try:
                    return (await client.get("/readyz")).status_code == httpx.codes.OK
                except httpx.TransportError:
                    return False

            await wait_until(ready, "the gateway sees the worker", timeout_s=READY_S)
            return traced

        yield start_one


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue: QueueConnections, raw: redis.asyncio.Redis, tmp_path: Path
) -> AsyncIterator[WorkerCluster]:
    """Submits entries directly to the queue, and starts no processes."""
    async with Processes(tmp_path) as processes:
        yield WorkerCluster(
            redis_url, processes, queue, raw, queue.connection("look"), Actor(queue.connection("submit"), queue.keys)
        )


@pytest_asyncio.fixture
async def separate_cluster(redis_url: str, queue_name: str, tmp_path: Path) -> AsyncIterator[GatewayCluster]:
    """A cluster around the test's queue, whose gateways and workers are separate processes."""
    async with Processes(tmp_path) as processes:
        yield GatewayCluster(processes, redis_url, queue_name)


@pytest_asyncio.fixture
async def fake_heartbeat(queue: QueueConnections) -> None:
    """Sends one heartbeat of a worker that does not exist, so that gateways accept requests that no worker serves."""
    beat = Heartbeat("ghost", "host", 1, "cpu", "null", 384, "ready", 0.0, 0, 0, 0)
    await consumer.heartbeat(queue.connection("ghost"), queue.keys, beat, 60_000)


@pytest.fixture
def text() -> str:
    """A text that occurs nowhere else."""
    return "a text that must not occur in a trace"
