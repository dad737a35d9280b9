"""The admin port: metrics and health of one process, in a separate thread.

It answers while the event loop is busy, and it is not the port that a load balancer exposes to the world.
"""

from __future__ import annotations

import errno
import json
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


class PortTakenError(Exception):
    """The admin port cannot be bound; the message names it, in one line."""


class AdminServer:
    """Serves GET /metrics, /livez and /readyz, and /health, which is the same as /readyz.

    `ready` returns the names of the missing parts (none missing: 200, else 503; see `without_excluded`); `live` returns
    whether the process is healthy. Both are called in a thread of this server, so they must only read. Port 0 picks a
    free one, and so does one that is taken if `or_free`.
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
                f"cannot listen on the admin port {host}:{port}: {error.strerror}; set another port"
            ) from error
        self._server.set_app(self._application)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="admin", daemon=True
        )
        self._thread.start()

    def _bind(self, host: str, port: int) -> WSGIServer:
        server_type = _Server6 if ":" in host else _Server
        try:
            return server_type((host, port), _QuietHandler)
        except OSError as error:
            if not self._or_free or error.errno != errno.EADDRINUSE:
                raise
            return server_type((host, 0), _QuietHandler)

    def stop(self) -> None:
        """Closes the port. Stopping twice, or before the start, does nothing."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        if self._thread is not None:
            self._thread.join(timeout=5)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_port = False  # two processes must not share a port: each has its own metrics

    def server_bind(self) -> None:
        # HTTPServer.server_bind queries DNS for the name of the address, which can take seconds and is not used.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    timeout = 10  # seconds; a client that sends nothing must not occupy a thread

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
