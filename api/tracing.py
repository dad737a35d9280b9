"""The spans of a gateway: one for each HTTP request, and one for its way into the stream. Only imported when traced."""

from __future__ import annotations

import re
from asyncio import Future
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import structlog
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, format_span_id, format_trace_id, get_current_span

from api.dispatch.inflight import InFlight
from api.routes import SERVED
from shared.process.tracing.harmless import harmless
from shared.process.tracing.traceparent import parent_in, traceparent_of
from shared.errors import RedbatchError
from shared.keys import LANES
from shared.messages import Failure, Reply

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.util.types import AttributeValue
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?")
SERVER_ERROR = 500
TIMES = ("queue_ms", "tokenize_ms", "inference_ms", "batch_size")


class TracedFront:
    """Makes a span of each HTTP request; log lines that are written meanwhile say of which trace they are.

    Args:
        app: answers the request.
        tracer: makes the span.
        silent: paths that are read by whoever probes: no spans of these.
    """

    def __init__(self, app: ASGIApp, tracer: Tracer, silent: frozenset[str]) -> None:
        self._app = app
        self._tracer = tracer
        self._silent = silent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, as ASGI."""
        if scope["type"] != "http" or (scope["path"] in self._silent and scope["method"] in ("GET", "HEAD")):
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                _answered(span, message)
            await send(message)

        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        with self._tracer.start_as_current_span(
            _name(method, scope),
            _parent(scope),
            SpanKind.SERVER,
            _asked(method, scope),
            record_exception=False,  # its message may hold anything
            set_status_on_exception=False,
        ) as span:
            told = span.get_span_context()
            with structlog.contextvars.bound_contextvars(
                trace_id=format_trace_id(told.trace_id), span_id=format_span_id(told.span_id)
            ):
                try:
                    await self._app(scope, receive, sending)
                except Exception as error:
                    _failed(span, error)
                    raise
                finally:
                    if route := _route(scope):
                        span.set_attribute("http.route", route)
                        span.update_name(_name(method, scope))


def _headers(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


def _parent(scope: Scope) -> Context:
    return parent_in(_headers(scope, b"traceparent"), _headers(scope, b"tracestate"))


def _asked(method: str, scope: Scope) -> dict[str, AttributeValue]:
    """Returns what is asked for. The query is left out: it may hold anything."""
    told: dict[str, AttributeValue] = {
        "http.request.method": method,
        "url.scheme": scope.get("scheme", "http"),
        "url.path": scope["path"],
        "network.protocol.version": scope["http_version"],
    }
    if method != scope["method"]:
        told["http.request.method_original"] = scope["method"]
    if host := HOST.fullmatch("".join(_headers(scope, b"host"))):
        told |= {"server.address": host[1].strip("[]")} if host[1] else {}
        told |= {"server.port": int(host[2])} if host[2] else {}
    return told


def _route(scope: Scope) -> str:
    """Returns the template of the path, as far as that is known: of a framework's route, after it was called."""
    if scope["path"] in SERVED and scope["method"] == "POST":
        return str(scope["path"])
    return getattr(scope.get("route"), "path_format", "")


def _name(method: str, scope: Scope) -> str:
    return f"{'HTTP' if method == '_OTHER' else method} {_route(scope)}".rstrip()


@harmless
def _answered(span: Span, message: Message) -> None:
    status = message["status"]
    span.set_attribute("http.response.status_code", status)
    for name, value in message.get("headers", ()):
        if name == b"x-request-id":
            span.set_attribute("redbatch.request_id", value.decode("latin-1"))
    if status >= SERVER_ERROR:
        span.set_attribute("error.type", str(status))
        span.set_status(StatusCode.ERROR)


class Sends:
    """The spans of what goes into one queue: from when a request is ready for it, to when it is in the stream.

    Attributes:
        client: what the gateway is called there.
    """

    def __init__(self, tracer: Tracer, queue: str) -> None:
        self._tracer = tracer
        self._queue = queue
        self.client = ""
        self._open: dict[str, Span] = {}

    @harmless
    def begin(self, request: InFlight) -> None:
        """A request is on its way; its entries are to name this span."""
        drafts = request.drafts.values()
        span = self._tracer.start_span(
            f"send {self._queue}",
            kind=SpanKind.PRODUCER,
            attributes=self._attributes(request.lane)
            | ({"messaging.batch.message_count": len(drafts)} if len(drafts) > 1 else {})
            | {"redbatch.inputs": sum(draft.n for draft in drafts)},
        )
        request.traceparent = traceparent_of(span)
        self._open[request.request_id] = span
        request.answer.add_done_callback(partial(self._done, request.request_id, get_current_span()))

    @harmless
    def sent(self, request: InFlight) -> None:
        """It is in the stream; what is said again of one that was added again changes nothing."""
        if span := self._open.pop(request.request_id, None):
            span.end()

    @contextmanager
    def job(self, lane: int) -> Iterator[str]:
        """The inputs of a job go into Redis. Yields what its entries are to carry."""
        with self._tracer.start_as_current_span(
            f"send {self._queue}",
            kind=SpanKind.PRODUCER,
            attributes=self._attributes(lane),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield traceparent_of(span)
            except Exception as error:
                _failed(span, error)
                raise

    def _attributes(self, lane: int) -> dict[str, AttributeValue]:
        return {
            "messaging.system": "redis",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": self._queue,
            "messaging.client.id": self.client,
            "redbatch.lane": LANES[lane],
        }

    @harmless
    def _done(self, request_id: str, server: Span, answer: Future[list[Reply]]) -> None:
        """It has its answer, or nobody waits for that any more. Refused, it never was in the stream."""
        error = None if answer.cancelled() else answer.exception()
        if span := self._open.pop(request_id, None):
            if error is not None:
                _failed(span, error)
            span.end()
        if isinstance(error, RedbatchError):
            server.set_attribute("redbatch.error.code", error.code)
        elif error is None and not answer.cancelled():
            _timed(server, answer.result())


def _failed(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", error.code if isinstance(error, RedbatchError) else type(error).__qualname__)
    span.set_status(StatusCode.ERROR)


def _timed(server: Span, replies: list[Reply]) -> None:
    """Tells, in the trace of the request itself, how long the slowest of its entries took in the worker."""
    times = [each.timing for each in replies if not isinstance(each, Failure)]
    if times:
        slowest = max(times, key=lambda each: each.queue_ms + each.inference_ms)
        server.set_attributes({f"redbatch.{name}": getattr(slowest, name) for name in TIMES})
