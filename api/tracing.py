"""The spans of a gateway: one for each HTTP request, and one for its way into the stream. Imported only if traced."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import structlog
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, format_span_id, format_trace_id, get_current_span

from api.dispatch.inflight import InFlight
from api.http.answer_cycle import answered_request_id, begins_answer
from api.http.host_header import HOST_HEADER
from api.routes import DIALECTS, unlisted_template
from shared.errors import RedbatchError
from shared.keys import LANES
from shared.messages import Failure, Reply
from shared.process.tracing.suppress_errors import suppress_errors
from shared.process.tracing.traceparent import format_traceparent, parse_parent

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.util.types import AttributeValue
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HTTP_METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
SERVER_ERROR = 500
TIMING_FIELDS = ("queue_ms", "tokenize_ms", "inference_ms", "batch_size")


class TracingMiddleware:
    """Makes a span of each HTTP request, and adds its trace and span ids to the log lines of the request.

    Args:
        app: answers the request.
        tracer: makes the spans.
        untraced_paths: paths of probes: GET and HEAD requests to these have no spans.
    """

    def __init__(self, app: ASGIApp, tracer: Tracer, untraced_paths: frozenset[str]) -> None:
        self._app = app
        self._tracer = tracer
        self._untraced_paths = untraced_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, as ASGI."""
        if scope["type"] != "http" or (scope["path"] in self._untraced_paths and scope["method"] in ("GET", "HEAD")):
            await self._app(scope, receive, send)
            return

        async def send_traced(message: Message) -> None:
            if begins_answer(message):
                _record_answer(span, message)
            await send(message)

        method = scope["method"] if scope["method"] in HTTP_METHODS else "_OTHER"
        unlisted = unlisted_template(scope["path"])  # now, since the application adds the prefix of a proxy
        with self._tracer.start_as_current_span(
            _name(method, _route_template(scope) or unlisted),
            _parent(scope),
            SpanKind.SERVER,
            _request_attributes(method, scope),
            record_exception=False,  # its message may hold anything, also an input
            set_status_on_exception=False,
        ) as span:
            context = span.get_span_context()
            with structlog.contextvars.bound_contextvars(
                trace_id=format_trace_id(context.trace_id), span_id=format_span_id(context.span_id)
            ):
                try:
                    await self._app(scope, receive, send_traced)
                except Exception as error:
                    _record_failure(span, error)
                    raise
                finally:
                    if route := _route_template(scope) or unlisted:
                        span.set_attribute("http.route", route)
                        span.update_name(_name(method, route))


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _parent(scope: Scope) -> Context:
    return parse_parent(_headers(scope, b"traceparent"), _headers(scope, b"tracestate"))


def _request_attributes(method: str, scope: Scope) -> dict[str, AttributeValue]:
    """Returns the attributes of a request, without its query, which may hold anything."""
    attributes: dict[str, AttributeValue] = {
        "http.request.method": method,
        "url.scheme": scope.get("scheme", "http"),
        "url.path": scope["path"],
        "network.protocol.version": scope["http_version"],
    }
    if method != scope["method"]:
        attributes["http.request.method_original"] = scope["method"]
    if host := HOST_HEADER.fullmatch("".join(_headers(scope, b"host"))):
        attributes |= {"server.address": host[1].strip("[]")} if host[1] else {}
        attributes |= {"server.port": int(host[2])} if host[2] else {}
    return attributes


def _route_template(scope: Scope) -> str:
    """Returns the template of the path, or "" while unknown: the framework sets it when it calls the route."""
    if scope["path"] in DIALECTS and scope["method"] == "POST":
        return str(scope["path"])
    return getattr(scope.get("route"), "path_format", "")


def _name(method: str, route: str) -> str:
    return f"{'HTTP' if method == '_OTHER' else method} {route}".rstrip()


@suppress_errors
def _record_answer(span: Span, message: Message) -> None:
    status = message["status"]
    span.set_attribute("http.response.status_code", status)
    if request_id := answered_request_id(message):
        span.set_attribute("redbatch.request_id", request_id)
    if status >= SERVER_ERROR:
        span.set_attribute("error.type", str(status))
        span.set_status(StatusCode.ERROR)


class OtelProducerSpans:
    """The producer spans of one queue: from when a request is ready for the queue to when it is in the stream.

    Attributes:
        client: the gateway's name in the queue.
    """

    def __init__(self, tracer: Tracer, queue: str) -> None:
        self._tracer = tracer
        self._queue = queue
        self.client = ""
        self._open: dict[str, Span] = {}

    @suppress_errors
    def begin(self, request: InFlight) -> None:
        """Opens the span of a request, and sets it in the request for its entries to carry."""
        new_entries = request.new_entries.values()
        span = self._tracer.start_span(
            f"send {self._queue}",
            kind=SpanKind.PRODUCER,
            attributes=self._attributes(request.lane)
            | ({"messaging.batch.message_count": len(new_entries)} if len(new_entries) > 1 else {})
            | {"redbatch.inputs": sum(entry.n for entry in new_entries)},
        )
        request.traceparent = format_traceparent(span)
        self._open[request.request_id] = span
        request.answer.add_done_callback(partial(self._done, request.request_id, get_current_span()))

    @suppress_errors
    def end(self, request: InFlight) -> None:
        """Ends the span: the request is in the stream. Further calls, when it is added again, change nothing."""
        if span := self._open.pop(request.request_id, None):
            span.end()

    @contextmanager
    def job(self, lane: int) -> Iterator[str]:
        """Makes the span in which the inputs of a job go into Redis. Yields the `traceparent` for its entries."""
        with self._tracer.start_as_current_span(
            f"send {self._queue}",
            kind=SpanKind.PRODUCER,
            attributes=self._attributes(lane),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield format_traceparent(span)
            except Exception as error:
                _record_failure(span, error)
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

    @suppress_errors
    def _done(self, request_id: str, server: Span, answer: Future[list[Reply]]) -> None:
        """Records how a request ended: answered, failed, or without a client that waits for it.

        The span of a request that was refused is still open, because the request never was in the stream.
        """
        error = None if answer.cancelled() else answer.exception()
        if span := self._open.pop(request_id, None):
            if error is not None:
                _record_failure(span, error)
            span.end()
        if isinstance(error, RedbatchError):
            server.set_attribute("redbatch.error.code", error.code)
        elif error is None and not answer.cancelled():
            _record_times(server, answer.result())


def _record_failure(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", error.code if isinstance(error, RedbatchError) else type(error).__qualname__)
    span.set_status(StatusCode.ERROR)


def _record_times(server: Span, replies: list[Reply]) -> None:
    """Adds the worker's times of a request's slowest entry to the span of the request."""
    times = [each.timing for each in replies if not isinstance(each, Failure)]
    if times:
        slowest = max(times, key=lambda each: each.queue_ms + each.inference_ms)
        server.set_attributes({f"redbatch.{name}": getattr(slowest, name) for name in TIMING_FIELDS})
