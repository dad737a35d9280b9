"""A collector of traces over OTLP, which stores the spans with their services, or never answers."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Listens while the block runs.

    Args:
        silent: whether it accepts requests and never answers.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self._lock = threading.Lock()
        self._spans: list[tuple[str, Span]] = []
        self._stop = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                if silent:
                    outer._stop.wait()
                    return
                data = self.rfile.read(int(self.headers["content-length"]))
                outer._store(gzip.decompress(data) if self.headers["content-encoding"] == "gzip" else data)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
                """Logs nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The URL of the collector."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def named(self, name: str) -> list[tuple[str, Span]]:
        """Returns the spans with a name, each with the name of its service."""
        with self._lock:
            return [(service, span) for service, span in self._spans if span.name == name]

    def _store(self, data: bytes) -> None:
        for part in ExportTraceServiceRequest.FromString(data).resource_spans:
            resource = {each.key: each.value.string_value for each in part.resource.attributes}
            with self._lock:
                self._spans += [(resource["service.name"], span) for scope in part.scope_spans for span in scope.spans]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
