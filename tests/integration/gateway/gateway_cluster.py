"""Gateways and workers as real processes around one queue, and helpers for their clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import httpx
import numpy as np
import redis

from shared.keys import Keys
from tests import plain_http
from tests.leaks import find_leaks, remove
from tests.processes import Processes, Program

REPEATS = 12


def null_vector(text: str) -> bytes:
    """Returns the vector of a text by the null model, as raw float32."""
    digest = np.frombuffer(sha256(text.encode()).digest(), dtype=np.uint8)
    return np.tile(digest.astype("<f4") / np.float32(255), REPEATS).tobytes()


def vector_bytes(vector: Sequence[float]) -> bytes:
    """Returns a vector of a JSON answer as raw float32."""
    return np.array(vector, dtype="<f4").tobytes()


def has_vectors(answer: httpx.Response, texts: Sequence[str]) -> bool:
    """Whether an answer contains the null model's vector of each text, bit for bit and in order."""
    return answer.status_code == 200 and list(map(vector_bytes, answer.json()["embeddings"])) == list(
        map(null_vector, texts)
    )


def error_of(answer: httpx.Response) -> dict[str, str]:
    """Returns the error in an answer, which must have the schema of all errors and the id of the request."""
    body = answer.json()
    assert list(body) == ["error"]
    assert sorted(body["error"]) == ["code", "message", "request_id"]
    assert answer.headers["content-type"] == "application/json"
    assert body["error"]["request_id"] == answer.headers["x-request-id"]
    assert body["error"]["message"]
    return dict(body["error"])


def log_lines(program: Program) -> list[dict[str, Any]]:
    """Returns all log records of a program. Raises an error if a line is not a JSON object.

    The program may be writing the last line: it is there when its end is.
    """
    output = program.output
    lines = [json.loads(line) for line in output[: output.rfind("\n") + 1].splitlines()]
    assert all(isinstance(line, dict) for line in lines)
    return lines


@dataclass(frozen=True)
class GatewayProcess:
    """One gateway process and its ports."""

    program: Program
    port: int
    admin_port: int

    @property
    def url(self) -> str:
        """The URL of the main port."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin(self) -> str:
        """The URL of the admin port."""
        return f"http://127.0.0.1:{self.admin_port}"

    def embed(self, body: object, **headers: str) -> httpx.Response:
        """Posts a body to /embed on a new connection; `x_timeout_ms` is the header X-Timeout-Ms."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return plain_http.post(f"{self.url}/embed", json=body, headers=named, timeout=60)

    async def send(self, client: httpx.AsyncClient, text: str, **headers: str) -> httpx.Response:
        """Posts one text to /embed over a client's connections."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.post(f"{self.url}/embed", json={"text": text}, headers=named)

    def metric(self, name: str) -> float:
        """Returns the value of a metric; the name contains its labels, or the values are summed over them."""
        return metric(self.program, name)

    def errors(self, code: str, queue: str = "") -> float:
        """Returns the number of errors with a code that the gateway has counted, for a queue or for none ("")."""
        return self.metric(f'redbatch_errors_total{{code="{code}",queue="{queue}"}}')

    def ready_workers(self, queue: str) -> float:
        """Returns the number of ready workers of a queue in the gateway's metrics."""
        return self.metric(f'redbatch_workers{{queue="{queue}",state="ready"}}')

    def missing(self) -> list[str]:
        """Returns the list `missing` of /readyz."""
        answer = plain_http.get(f"{self.url}/readyz")
        missing: list[str] = answer.json().get("missing", [])
        assert answer.status_code == (503 if missing else 200)
        return missing


class GatewayCluster:
    """Starts gateways and workers around one queue, and checks that no key of the queue remains.

    Args:
        processes: starts the programs.
        redis_url: URL of the Redis server.
        queue: name of the queue.
        further_urls: of the Redis of further shards.

    Attributes:
        environment: additional environment variables of every process.
    """

    def __init__(self, processes: Processes, redis_url: str, queue: str, further_urls: Sequence[str] = ()) -> None:
        self.processes = processes
        self.redis_url = redis_url
        self.further_urls = further_urls
        self.queue = queue
        self.keys = Keys(queue)
        self.environment: dict[str, str] = {}

    @property
    def redis_urls(self) -> list[str]:
        """The URLs of all Redis."""
        return [self.redis_url, *self.further_urls]

    def env(self, **settings: object) -> dict[str, str]:
        """Returns the environment of a process with these settings, named as their fields: `drain_delay_s=3`.

        None leaves a setting unset.
        """
        common: dict[str, object] = {"queue": self.queue, "port": 0, "admin_port": 0, "drain_delay_s": 0}
        common["all_queues"] = False  # the queues of other tests are in the same Redis
        if self.further_urls and "redis_url" not in settings:
            common["redis_shards"] = ",".join(self.redis_urls)
        else:
            common["redis_url"] = self.redis_url
        given = {name: value for name, value in (common | settings).items() if value is not None}
        named = {f"REDBATCH_{name.upper()}": str(value) for name, value in given.items()}
        return self.environment | named

    async def start_gateway(self, **settings: object) -> GatewayProcess:
        """Starts a gateway and waits until it listens; it need not be ready."""
        program = await self.processes.start("gateway", "api", self.env(**settings), is_listening)
        return gateway_of(program)

    async def start_worker(self, model: str = "null", **settings: object) -> Program:
        """Starts a worker and waits until it is ready."""
        return await self.processes.start("worker", "gpuworker", self.env(model=model, **settings), worker_is_ready)

    def check_leaks(self, *, uploads: bool = False, other_queues: Iterable[str] = ()) -> None:
        """Removes the queue's keys. Raises AssertionError if there were leaks; all processes must have ended.

        `uploads` may stay if they were cut off. `other_queues` are those of further models.
        """
        leaks = []
        for url in self.redis_urls:
            with redis.Redis.from_url(url, protocol=2) as client:
                for keys in (self.keys, *map(Keys, other_queues)):
                    leaks += find_leaks(client, keys, uploads=uploads)
                    remove(client, keys)
        assert not leaks, f"left behind: {leaks}"


@contextlib.contextmanager
def shared_gateway(
    cluster: GatewayCluster,
    start: Callable[[], Coroutine[Any, Any, GatewayProcess]],
    *,
    other_queues: Iterable[str] = (),
) -> Iterator[GatewayProcess]:
    """Runs what `start` starts for several tests, outside their event loops; then checks that no key remains."""

    async def stop() -> None:
        async with cluster.processes:
            pass

    with asyncio.Runner() as runner:
        gateway = runner.run(start())
    yield gateway
    with asyncio.Runner() as runner:
        runner.run(stop())
    cluster.check_leaks(other_queues=other_queues)


def gateway_of(program: Program) -> GatewayProcess:
    """Returns the gateway of a program, with the ports that it has logged."""
    record = next(line for line in log_lines(program) if line["msg"] == "gateway starts")
    return GatewayProcess(program, record["port"], record["admin_port"])


def metric(program: Program, name: str) -> float:
    """Returns the value of a metric of a gateway or a worker, or 0 if there is no such value.

    The name contains the labels; without labels, the values are summed over them.
    """
    return metric_value(plain_http.get(metrics_url(program)).text, name)


def metrics_url(program: Program) -> str:
    """Returns the URL of the metrics of a gateway or a worker."""
    port = next(line["admin_port"] for line in log_lines(program) if "admin_port" in line)
    return f"http://127.0.0.1:{port}/metrics"


def metric_value(page: str, name: str) -> float:
    """Returns the value of a metric on a page; if the name has no labels, the sum over them."""
    lines = page.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def is_listening(program: Program) -> bool:
    """Whether a gateway accepts connections."""
    if '"gateway starts"' not in program.output:
        return False
    try:
        return plain_http.get(f"{gateway_of(program).url}/livez").status_code == 200
    except httpx.TransportError:
        return False


def worker_is_ready(program: Program) -> bool:
    """Whether a worker's admin port reports that it is ready."""
    for line in log_lines(program):
        if "admin_port" in line:
            try:
                return plain_http.get(f"http://127.0.0.1:{line['admin_port']}/readyz").status_code == 200
            except httpx.TransportError:
                return False
    return False


def missing_of(worker: Program) -> list[str]:
    """Returns the list `missing` of a worker's /readyz; nothing as well before it listens."""
    port = next((line["admin_port"] for line in log_lines(worker) if "admin_port" in line), 0)
    missing: list[str] = plain_http.get(f"http://127.0.0.1:{port}/readyz").json().get("missing", []) if port else []
    return missing


def exchange_bytes(port: int, sent: bytes, *, timeout_s: float = 10.0) -> bytes:
    """Sends bytes to a port and returns everything received until the other side closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(sent)
        received = b""
        with contextlib.suppress(ConnectionResetError):  # the other side closed before it had read everything
            while chunk := connection.recv(65_536):
                received += chunk
        return received
