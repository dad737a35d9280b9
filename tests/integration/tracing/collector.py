"""A collector of traces: what it is sent over OTLP, and from whom. It may also be one that never answers."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Listens for as long as the block takes.

    Args:
        silent: whether it takes what it is sent, and never answers.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self._lock = threading.Lock()
        self._found: list[tuple[str, Span]] = []
        self._leaves = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                if silent:
                    outer._leaves.wait()
                    return
                data = self.rfile.read(int(self.headers["content-length"]))
                outer._take(gzip.decompress(data) if self.headers["content-encoding"] == "gzip" else data)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def named(self, name: str) -> list[tuple[str, Span]]:
        """Returns the spans of that name, each with the service that it is of."""
        with self._lock:
            return [(service, span) for service, span in self._found if span.name == name]

    def _take(self, data: bytes) -> None:
        for part in ExportTraceServiceRequest.FromString(data).resource_spans:
            told = {each.key: each.value.string_value for each in part.resource.attributes}
            with self._lock:
                self._found += [(told["service.name"], span) for scope in part.scope_spans for span in scope.spans]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._leaves.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
