"""Runs one gateway: the server, its admin port, and its shutdown."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, cast

import structlog
import uvicorn
import uvloop

from api.app import UNAUTHENTICATED_PATHS, FastPathApp, make_app
from api.http.auth import ApiKeyAuthenticator, NoKeysError, create_authenticator
from api.http.connection_limiter import ConnectionLimiter
from api.http.connection_table import max_connections_of
from api.http.idle_timer import IdleTimer
from api.http.probes_only import probe_paths
from api.http.protocol import GatewayProtocol
from api.http.request_log import AccessLogApp
from api.http.root_path import RootPathApp
from api.http.unsent_limiter import UnsentLimiter
from api.memory_bounds import max_memory_bytes
from api.queues import Queues
from api.routes import begins_route
from api.settings import GatewaySettings
from api.state import State
from shared.process.admin_server import AdminServer, PortTakenError
from shared.process.gc_tuning import collect_rarely
from shared.process.listener import BACKLOG, ListenError, max_open_files, raise_open_file_limit
from shared.process.listener import listen as bind
from shared.process.memory import memory_bytes
from shared.process.redis_advice import advise_until_redis_answers
from shared.process.settings import EXIT_CONFIGURATION, flag_of, print_error, variable_of
from shared.process.tasks import cancel_and_wait
from shared.process.tracing import Tracing, start_tracing
from shared.process.unexpected_replies import record_unexpected_reply
from shared.queue_connections import QueueConnections
from shared.redis_url import one_per_keyspace
from shared.shard_connections import connect_shards
from shared.usage_counts import UsageCounts

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = structlog.get_logger()

LINGER_S = 1.0
LINGER_STEP_S = 0.02


class DrainingServer(uvicorn.Server):
    """A server that shuts down without failing a request.

    On the first signal, /readyz turns 503 and answers close their connections, but requests are still served for
    `drain_delay_s`. Then the listener closes. Connections that were accepted at that moment, or are idle, get LINGER_S
    to send a request; requests in flight get `drain_grace_s`. A second signal ends the server at once.
    """

    def __init__(self, config: uvicorn.Config, state: State) -> None:
        super().__init__(config)
        self._state = state

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Starts the drain; a second signal ends the server at once."""
        if self._state.draining:
            self.should_exit = self.force_exit = True
            super().handle_exit(sig, frame)
            return
        self._state.draining = True
        log.info("gateway drains", in_flight=self._state.queues.in_flight)
        delay = self._state.settings.drain_delay_s
        asyncio.get_running_loop().call_later(delay, setattr, self, "should_exit", True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the listener, then each connection when it is idle."""
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        deadline = time.monotonic() + LINGER_S
        while self.server_state.connections and not self.force_exit and time.monotonic() < deadline:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(LINGER_STEP_S)
        await super().shutdown(sockets)


def build_gateway(
    settings: GatewaySettings,
    connections: Sequence[QueueConnections],
    authenticator: ApiKeyAuthenticator | None,
    tracing: Tracing | None,
) -> tuple[State, ASGIApp]:
    """Returns the state of a gateway and its application; both make spans if `tracing` is set."""
    read_shards, requeue_shards = (connect_shards(connections, purpose) for purpose in ("queues", "requeue"))
    shards = [each.connection for each in read_shards]
    counts = UsageCounts()
    # Connections that are there anyway: further ones would be idle most of the time.
    readers = one_per_keyspace(settings.shard_urls, shards)
    if tracing is None:
        queues = Queues(settings, shards, counts)
        state = State(settings, queues, counts, readers, authenticator, read_shards, requeue_shards=requeue_shards)
        return state, build_app(state)
    from api.tracing import OtelProducerSpans, TracingMiddleware  # noqa: PLC0415 - it imports OpenTelemetry

    tracer = tracing.tracer
    queues = Queues(settings, shards, counts, partial(OtelProducerSpans, tracer))
    state = State(settings, queues, counts, readers, authenticator, read_shards, requeue_shards=requeue_shards)
    return state, TracingMiddleware(build_app(state), tracer, UNAUTHENTICATED_PATHS)


def build_app(state: State) -> ASGIApp:
    """Returns the application; what logs each request is in its way only if that is set."""
    app = FastPathApp(make_app(state), state)
    return AccessLogApp(app) if state.settings.access_log else app


def gateway_protocol(settings: GatewaySettings) -> partial[GatewayProtocol]:
    """Returns what makes the protocol of a connection, for all connections of one gateway."""
    limits = settings.connection_limits(max_connections_of(settings.max_connections, max_open_files()))
    limiter = ConnectionLimiter(limits, settings.trusted_networks)
    return partial(
        GatewayProtocol,
        head_limits=settings.head_limits,
        limiter=limiter,
        unsent=UnsentLimiter(settings.unsent_limits),
        idle=IdleTimer(settings.keep_alive_s),
        probe_paths=probe_paths(settings.root_path),
    )


def _warn_of_little_memory(settings: GatewaySettings) -> None:
    max_connections = max_connections_of(settings.max_connections, max_open_files())
    needed = max_memory_bytes(settings.model_copy(update={"max_connections": max_connections}))
    available = memory_bytes()
    if needed > available:
        log.warning(
            "under attack, this gateway may need more memory than it has: give it more, or lower its bounds "
            "(docs/settings.md, Memory of a gateway)",
            max_mib=needed >> 20,
            available_mib=available >> 20,
        )


def _connect(settings: GatewaySettings) -> list[QueueConnections]:
    """Returns the connections to each shard for what all queues share."""
    client = f"gateway:{secrets.token_hex(8)}"
    return [QueueConnections(each, each.initial_queue, client, record_unexpected_reply) for each in settings.shards]


def _server_config(settings: GatewaySettings, app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        RootPathApp(app, settings.root_path) if settings.root_path else app,
        http=cast("type[GatewayProtocol]", gateway_protocol(settings)),  # called only
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_networks,
        backlog=BACKLOG,
        timeout_graceful_shutdown=max(1, round(settings.drain_grace_s)),
    )


def _log_start(settings: GatewaySettings, listen: socket.socket, admin_port: int) -> None:
    host, port = listen.getsockname()[:2]
    places = {"host": host, "port": port, "admin_port": admin_port, "redis": settings.redis_address}
    log.info("gateway starts", **places, queue=settings.initial_queue)


async def serve(settings: GatewaySettings, listen: socket.socket, tracing: Tracing | None = None) -> int:
    """Serves on a listening socket until SIGTERM or SIGINT; returns the exit code."""
    connections = _connect(settings)
    try:
        keyspaces = one_per_keyspace(settings.shard_urls, connections)
        key_connections = [each.shared_connection("keys") for each in keyspaces]
        authenticator = await create_authenticator(settings, key_connections)
    except NoKeysError as error:
        print_error(str(error))
        return EXIT_CONFIGURATION
    state, app = build_gateway(settings, connections, authenticator, tracing)
    state.action_authenticator = authenticator or ApiKeyAuthenticator(key_connections)
    or_free = "admin_port" not in settings.model_fields_set
    admin = AdminServer(settings.admin_host, settings.admin_port, state.missing, state.alive, or_free=or_free)
    admin.start()
    state.admin_port = admin.port
    _log_start(settings, listen, admin.port)
    _warn_of_little_memory(settings)
    server = DrainingServer(_server_config(settings, app), state)
    collect_rarely()
    advice = asyncio.create_task(advise_until_redis_answers(state.missing, settings.model_fields_set))
    try:
        await server.serve(sockets=[listen])
    finally:
        admin.stop()
        await cancel_and_wait([advice])
        for each in connections:
            await each.close()
    log.info("gateway stopped")
    return 0 if server.started else 1


def run(settings: GatewaySettings, listen: socket.socket | None = None) -> int:
    """Runs a gateway in this process, on `listen` or on a new socket for host and port; returns its exit code."""
    if begins_route(settings.root_path):
        where = f"{flag_of('root_path')} ({variable_of('root_path')})"
        print_error(f"{where}: routes of the gateway begin with it: choose another prefix, got {settings.root_path!r}")
        return EXIT_CONFIGURATION
    raise_open_file_limit()
    tracing = start_tracing(settings.tracing, "gateway")
    if listen is None:
        try:
            listen = bind(settings.host, settings.port)
        except ListenError as error:
            print_error(str(error))
            return 1
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(settings, listen, tracing))
    except PortTakenError as error:
        print_error(str(error))
        return 1
    finally:
        if tracing is not None:
            tracing.stop()
