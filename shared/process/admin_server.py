"""The admin port: metrics and health of one process, in a separate thread.

It answers while the event loop is busy, and it is not the port that a load balancer exposes to the world.
"""

from __future__ import annotations

import errno
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BytesIO
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app

from shared.process.settings import option_of

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


MAX_CONNECTIONS = 16
"""Each has a thread."""

MAX_HEAD_BYTES = 16_384
TIMEOUT_S = 10.0
"""For a request head to arrive, and for an answer to be taken."""

_TOO_LARGE = b"HTTP/1.0 431 Request Header Fields Too Large\r\n\r\n"


class PortTakenError(Exception):
    """The admin port cannot be bound; the message names it, in one line."""


class AdminServer:
    """Serves GET /metrics, /livez and /readyz, and /health, which is the same as /readyz.

    `ready` returns the names of the missing parts (none missing: 200, else 503; see `without_excluded`); `live` returns
    whether the process is healthy. Both are called in a thread of this server, so they must only read. Port 0 picks a
    free one, and so does one that is taken if `or_free`.

    A client that needs longer than `timeout_s`, or sends a head over MAX_HEAD_BYTES, is disconnected. A new connection
    beyond MAX_CONNECTIONS ends the oldest, of those without a complete head if there are any.
    """

    def __init__(
        self,
        host: str,
        port: int,
        ready: Callable[[], list[str]],
        live: Callable[[], bool],
        registry: CollectorRegistry = REGISTRY,
        *,
        or_free: bool = False,
    ) -> None:
        self.timeout_s = TIMEOUT_S
        self._address = (host, port)
        self._or_free = or_free
        self._application = _application(ready, live, make_wsgi_app(registry))
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on; before the start, the configured one."""
        return self._server.server_port if self._server else self._address[1]

    def start(self) -> None:
        """Binds the port and serves in a daemon thread.

        Raises:
            PortTakenError: the address cannot be bound.
        """
        host, port = self._address
        try:
            self._server = self._bind(host, port)
        except OSError as error:
            raise PortTakenError(
                f"cannot listen on the admin port {host}:{port}: {error.strerror}; choose another with "
                f"{option_of('admin_port')}"
            ) from error
        self._server.set_app(self._application)
        self._thread = threading.Thread(target=self._server.serve_forever, name="admin", daemon=True)
        self._thread.start()

    def _bind(self, host: str, port: int) -> WSGIServer:
        server_type = _Server6 if ":" in host else _Server
        try:
            return server_type((host, port), self.timeout_s)
        except OSError as error:
            if not self._or_free or error.errno != errno.EADDRINUSE:
                raise
            return server_type((host, 0), self.timeout_s)

    def stop(self) -> None:
        """Closes the port. Stopping twice, or before the start, does nothing."""
        server, self._server = self._server, None
        if server is None:
            return
        with suppress(OSError):  # ends the wait for a client; where a system does not allow it, that lasts 0.5 s
            server.socket.shutdown(socket.SHUT_RDWR)
        server.shutdown()
        server.server_close()
        if self._thread is not None:
            self._thread.join(timeout=5)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_port = False  # two processes must not share a port: each has its own metrics
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._free = threading.Semaphore(MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self._has_head: dict[socket.socket, bool] = {}
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer.server_bind queries DNS for the name of the address, which can take seconds and is not used.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        if not self._free.acquire(blocking=False):
            self._end_oldest()
            self._free.acquire()
        with self._lock:
            self._has_head[request] = False
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        if not isinstance(sys.exception(), OSError):  # a client that went away, or was too slow, is no fault
            super().handle_error(request, client_address)

    def note_head(self, request: socket.socket) -> None:
        """Records that the head of a request is complete: its connection is then ended after all others."""
        with self._lock:
            self._has_head[request] = True

    def _end_oldest(self) -> None:
        """Has the thread of the oldest connection end at once, whether it receives or sends."""
        with self._lock:
            victim = min(self._has_head, key=self._has_head.__getitem__, default=None)
            if victim is not None:
                with suppress(OSError):
                    victim.shutdown(socket.SHUT_RDWR)

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            del self._has_head[request]
        self._free.release()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """Answers from a complete head in memory, and sends a complete answer: no client can delay what is between."""

    server: _Server

    def setup(self) -> None:
        self.connection: socket.socket = self.request
        self.rfile, self.wfile = BytesIO(), BytesIO()
        self._answer = self.wfile

    def handle(self) -> None:
        head = self._read_head()
        if len(head) > MAX_HEAD_BYTES:
            self.wfile.write(_TOO_LARGE)
        elif head:
            self.server.note_head(self.connection)
            self.rfile = BytesIO(head)
            super().handle()
        self.connection.settimeout(self.server.timeout_s)
        self.connection.sendall(self._answer.getvalue())

    def _read_head(self) -> bytes:
        """Returns the head; b"" if the client ends before, and more than MAX_HEAD_BYTES if it is too large.

        Raises TimeoutError: it was not complete in time.
        """
        head, deadline = b"", time.monotonic() + self.server.timeout_s
        while b"\r\n\r\n" not in head and len(head) <= MAX_HEAD_BYTES:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError
            self.connection.settimeout(remaining_s)
            received = self.connection.recv(MAX_HEAD_BYTES + 1 - len(head))
            if not received:
                return b""
            head += received
        return head

    def finish(self) -> None:
        """Leaves the connection to the server, which closes it."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class'
        """Writes nothing: scrapes and probes come every second."""


def _application(ready: Callable[[], list[str]], live: Callable[[], bool], metrics: WSGIApplication) -> WSGIApplication:
    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if environ.get("REQUEST_METHOD") not in {"GET", "HEAD"}:
            return _json(start, "405 Method Not Allowed", {"status": "method not allowed"})
        if path == "/metrics":
            return metrics(environ, start)
        if path == "/livez":
            return _health(start, healthy=live(), detail={})
        if path in {"/readyz", "/health"}:
            missing = without_excluded(ready(), environ.get("QUERY_STRING", ""))
            return _health(start, healthy=not missing, detail={"missing": missing})
        return _json(start, "404 Not Found", {"status": "not found"})

    return answer


def without_excluded(missing: list[str], query: str) -> list[str]:
    """Returns the missing parts except those that a query excludes: GET /readyz?exclude=worker.

    As in Kubernetes' own API server; a probe excludes the parts that its own pod is not responsible for.
    """
    excluded = parse_qs(query).get("exclude", [])
    return [name for name in missing if name not in excluded]


def _health(start: StartResponse, *, healthy: bool, detail: dict[str, Any]) -> Iterable[bytes]:
    if healthy:
        return _json(start, "200 OK", {"status": "ok"})
    return _json(start, "503 Service Unavailable", {"status": "unavailable", **detail})


def _json(start: StartResponse, status: str, body: dict[str, Any]) -> Iterable[bytes]:
    content = json.dumps(body).encode()
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
    return [content]
