"""Runs one gateway: the server, its admin port, and its way out."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import time
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import structlog
import uvicorn
import uvloop

from api.http.auth import Gate, NoKeys, gate_of
from api.app import OPEN, Front, make_app
from api.http.protocol import Connection
from api.queues import Queues
from api.settings import GatewaySettings
from api.state import State
from shared.process.admin_server import AdminServer, PortTaken
from shared.process.gc_tuning import collect_rarely
from shared.process.listener import BACKLOG, ListenError
from shared.process.listener import listen as bind
from shared.process.listener import raise_open_file_limit
from shared.process.settings import EXIT_CONFIGURATION
from shared.process.tracing import Tracing, start_tracing
from shared.connection import Queue

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = structlog.get_logger()

KEEP_ALIVE_S = 75
"""Longer than load balancers keep an idle connection (60 s is usual), so that they close it, not this side."""

LINGER_S = 1.0
LINGER_STEP_S = 0.02


class DrainingServer(uvicorn.Server):
    """A server that leaves without failing a request.

    On the first signal /readyz turns 503 and answers close their connections, while requests are still served for
    `drain_delay_s`. Then the listener closes. Connections that were accepted in that moment, or are idle, get LINGER_S
    to bring a request; those in flight get `drain_grace_s`. A second signal ends it at once.
    """

    def __init__(self, config: uvicorn.Config, state: State) -> None:
        super().__init__(config)
        self._state = state

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins the drain."""
        if self._state.draining:
            self.should_exit = self.force_exit = True
            super().handle_exit(sig, frame)
            return
        self._state.draining = True
        log.info("gateway drains", in_flight=self._state.queues.in_flight)
        delay = self._state.settings.drain_delay_s
        asyncio.get_running_loop().call_later(delay, setattr, self, "should_exit", True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the listener, then the connections as they fall silent."""
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        ends = time.monotonic() + LINGER_S
        while self.server_state.connections and not self.force_exit and time.monotonic() < ends:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(LINGER_STEP_S)
        await super().shutdown(sockets)


def gateway_of(
    settings: GatewaySettings, own: Queue, gate: Gate | None, tracing: Tracing | None
) -> tuple[State, ASGIApp]:
    """Returns what all requests are answered with, and the application; both make spans if `tracing` is given."""
    if tracing is None:
        state = State(settings, Queues(settings, own.link("queues")), gate)
        return state, Front(make_app(state), state)
    from api.tracing import Sends, TracedFront  # noqa: PLC0415 - it imports OpenTelemetry

    tracer = tracing.tracer
    state = State(settings, Queues(settings, own.link("queues"), partial(Sends, tracer)), gate)
    return state, TracedFront(Front(make_app(state), state), tracer, OPEN)


async def serve(settings: GatewaySettings, listen: socket.socket, tracing: Tracing | None = None) -> int:
    """Serves on a listening socket until SIGTERM or SIGINT; returns the exit code."""
    own = Queue(settings, settings.queue, f"gateway:{secrets.token_hex(8)}")
    try:
        gate = await gate_of(settings, own.link("keys"))
    except NoKeys as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIGURATION
    state, app = gateway_of(settings, own, gate, tracing)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(settings.drain_grace_s)),
    )
    admin = AdminServer(settings.admin_host, settings.admin_port, state.missing, state.alive)
    admin.start()
    host, port = listen.getsockname()[:2]
    log.info("gateway starts", host=host, port=port, admin_port=admin.port, queue=settings.queue)
    server = DrainingServer(config, state)
    collect_rarely()
    try:
        await server.serve(sockets=[listen])
    finally:
        admin.stop()
        await own.close()
    log.info("gateway stopped")
    return 0 if server.started else 1


def run(settings: GatewaySettings, listen: socket.socket | None = None) -> int:
    """Runs a gateway in this process, on the given listening socket or on one of its own; returns its exit code."""
    raise_open_file_limit()
    tracing = start_tracing(settings.tracing, "gateway")
    if listen is None:
        try:
            listen = bind(settings.host, settings.port)
        except ListenError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(settings, listen, tracing))
    except PortTaken as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        if tracing is not None:
            tracing.stop()
