"""The spans of a gateway, without a server and without Redis."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer
from structlog.testing import capture_logs

from api.dialects.request import InferenceRequest
from api.dispatch.inflight import InFlight
from api.tracing import OtelProducerSpans, TracingMiddleware
from shared.errors import DeadlineExceededError, JobsFullError, OverloadedError
from shared.keys import BULK
from shared.messages import NewEntry, Timing, Vectors
from shared.process.tracing import create_tracing
from shared.process.tracing.traceparent import parse_traceparent
from shared.process.tracing.tracer_provider import create_bare_provider

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

ID = "a" * 32
PARENT = f"00-{'a' * 32}-{'b' * 16}-01".encode()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Holds the spans that have ended."""
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> Tracer:
    """Makes spans."""
    provider = create_bare_provider("gateway")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return create_tracing(provider).tracer


def only_span(exporter: InMemorySpanExporter) -> ReadableSpan:
    """Returns the only span."""
    [span] = exporter.get_finished_spans()
    return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Returns the attributes of a span."""
    return dict(span.attributes or {})


async def send_request(middleware: TracingMiddleware, **scope: Any) -> None:  # noqa: ANN401 - any value of a scope
    """Sends a request and drops the answer."""

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_message: Message) -> None:
        pass

    default = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/embed", "headers": []}
    await middleware(default | scope, receive, send)


async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answers 204."""
    await send({"type": "http.response.start", "status": 204, "headers": []})


async def test_attributes_of_a_request(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """A span holds the attributes of its request, but not the query, which may hold anything."""
    host = (b"host", b"example.com:8080")
    await send_request(
        TracingMiddleware(answer, tracer, frozenset()), scheme="https", query_string=b"key=secret", headers=[host]
    )
    assert attributes(only_span(exporter)) == {
        "http.request.method": "POST",
        "http.response.status_code": 204,
        "http.route": "/embed",
        "network.protocol.version": "1.1",
        "server.address": "example.com",
        "server.port": 8080,
        "url.path": "/embed",
        "url.scheme": "https",
    }


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("a", ("a", None)),
        ("[::1]:80", ("::1", 80)),
        (":80", (None, 80)),
        ("", (None, None)),
        ("a:999999", (None, None)),
    ],
)
async def test_the_server_address_is_that_of_the_host_header(
    tracer: Tracer, exporter: InMemorySpanExporter, host: str, expected: tuple[str | None, int | None]
) -> None:
    """A Host that is not valid is left out: a port that OTLP cannot hold would cost other spans too."""
    await send_request(TracingMiddleware(answer, tracer, frozenset()), headers=[(b"host", host.encode())])
    found = attributes(only_span(exporter))
    assert (found.get("server.address"), found.get("server.port")) == expected


async def test_an_unknown_method_is_not_in_the_span_name(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """Otherwise a client could create any number of span names."""
    await send_request(TracingMiddleware(answer, tracer, frozenset()), method="BREW", path="/pot")
    span = only_span(exporter)
    methods = [attributes(span)[f"http.request.method{which}"] for which in ("", "_original")]
    assert (span.name, methods) == ("HTTP", ["_OTHER", "BREW"])


async def test_paths_that_are_no_routes_of_the_framework_have_names(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    """As in the access log, also where the application adds the prefix of a proxy to the path."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = f"/prefix{scope['path']}"
        await answer(scope, receive, send)

    await send_request(TracingMiddleware(serve, tracer, frozenset()), method="GET", path="/openapi.json")
    span = only_span(exporter)
    assert (span.name, attributes(span)["http.route"]) == ("GET /openapi.json", "/openapi.json")


@pytest.mark.parametrize("answering", [False, True])
async def test_a_span_holds_no_error_message(tracer: Tracer, exporter: InMemorySpanExporter, answering: bool) -> None:
    """An error is recorded by its type, even after the answer has answering; its message may hold an input."""

    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path_format="/jobs/{id}/result")
        if answering:
            await answer(scope, receive, send)
        raise ValueError("an input")

    with pytest.raises(ValueError, match="an input"):
        await send_request(TracingMiddleware(fail, tracer, frozenset()), method="GET", path="/jobs/1/result")
    span = only_span(exporter)
    assert (span.name, span.events) == ("GET /jobs/{id}/result", ())
    assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert attributes(span).get("http.response.status_code") == (204 if answering else None)
    assert "an input" not in span.to_json()


async def test_a_request_that_is_cancelled_is_no_error(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """A request whose client has left leaves the status of the span unset."""

    async def leave(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await send_request(TracingMiddleware(leave, tracer, frozenset()))
    span = only_span(exporter)
    assert (span.name, span.status.status_code) == ("POST /embed", StatusCode.UNSET)


@pytest.mark.parametrize("parents", [1, 2])
async def test_repeated_trace_headers(tracer: Tracer, exporter: InMemorySpanExporter, parents: int) -> None:
    """Per W3C, the fields of `tracestate` are one list, and two `traceparent` headers mean no parent."""
    states = [(b"tracestate", b"a=1"), (b"tracestate", b"b=2")]
    await send_request(
        TracingMiddleware(answer, tracer, frozenset()), headers=[(b"traceparent", PARENT)] * parents + states
    )
    span = only_span(exporter)
    assert (span.parent is not None) == (parents == 1)
    assert dict(span.context.trace_state) == ({"a": "1", "b": "2"} if parents == 1 else {})


async def test_log_lines_carry_the_ids_of_the_trace(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """Log lines carry the ids during the request, and not after it."""
    bound: list[dict[str, Any]] = []

    async def look(_scope: Scope, _receive: Receive, _send: Send) -> None:
        bound.append(structlog.contextvars.get_contextvars())

    await send_request(TracingMiddleware(look, tracer, frozenset()))
    context = only_span(exporter).context
    assert bound == [{"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}]
    assert structlog.contextvars.get_contextvars() == {}


@pytest.mark.parametrize(("method", "num_spans"), [("GET", 0), ("HEAD", 0), ("POST", 1)])
async def test_probes_have_no_spans(
    tracer: Tracer, exporter: InMemorySpanExporter, method: str, num_spans: int
) -> None:
    """A probe is recognized by path and method, because TEI's clients may send texts to the same path."""
    await send_request(TracingMiddleware(answer, tracer, frozenset({"/"})), method=method, path="/")
    assert len(exporter.get_finished_spans()) == num_spans


async def in_flight(spans: OtelProducerSpans) -> InFlight:
    """Returns a request whose span is open."""
    new_entries = [NewEntry(0, 2, 1, b""), NewEntry(2, 1, 1, b"")]
    request = InFlight(ID, new_entries, asyncio.get_running_loop().time() + 10, InferenceRequest(("a",), 10_000))
    spans.begin(request)
    return request


async def test_entries_carry_the_producer_span(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """The producer span ends once the entries are in the stream; the server span gets the slowest entry's times."""
    spans = OtelProducerSpans(tracer, "minilm")
    spans.client = "gateway"
    with tracer.start_as_current_span("server"):
        request = await in_flight(spans)
        assert exporter.get_finished_spans() == ()
        spans.end(request)
        spans.end(request)
        request.accept(Vectors(ID, 0, 2, 1, b"12345678", Timing(1.0, 20.0, 3, 4.0)))
        request.accept(Vectors(ID, 2, 1, 1, b"1234", Timing(5.0, 6.0, 7, 8.0)))
        await asyncio.sleep(0)
    send, server = exporter.get_finished_spans()
    context = parse_traceparent(request.traceparent)
    assert context is not None
    assert context.span_id == send.context.span_id
    assert attributes(send) == {
        "messaging.batch.message_count": 2,
        "messaging.client.id": "gateway",
        "messaging.destination.name": "minilm",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.system": "redis",
        "redbatch.inputs": 3,
        "redbatch.lane": "interactive",
    }
    assert attributes(server) == {
        "redbatch.queue_ms": 1.0,
        "redbatch.tokenize_ms": 4.0,
        "redbatch.inference_ms": 20.0,
        "redbatch.batch_size": 3,
    }


async def test_entries_of_an_unsampled_request_carry_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers need not parse the id of a span that is not exported."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    request = await in_flight(OtelProducerSpans(create_tracing(create_bare_provider("gateway")).tracer, "minilm"))
    assert request.traceparent == ""
    request.close()


async def test_a_request_goes_on_without_its_span() -> None:
    """A request continues if its span cannot be made."""
    spans = OtelProducerSpans(cast("Tracer", None), "minilm")
    with capture_logs() as logs:
        request = await in_flight(spans)
        spans.end(request)
    assert (request.done, request.traceparent) == (False, "")
    assert all(line["event"] == "spans are lost" for line in logs)
    request.close()


async def test_a_refused_request_ends_its_span_with_an_error(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """The span has the code of the error."""
    request = await in_flight(OtelProducerSpans(tracer, "minilm"))
    request.fail(OverloadedError("full"))
    await asyncio.sleep(0)
    span = only_span(exporter)
    assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, "overloaded")
    request.close()


@pytest.mark.parametrize("sent", [True, False])
async def test_a_client_that_leaves_ends_the_span(tracer: Tracer, exporter: InMemorySpanExporter, sent: bool) -> None:
    """The span of a request whose client left has no error status, and is not held any more."""
    spans = OtelProducerSpans(tracer, "minilm")
    request = await in_flight(spans)
    if sent:
        spans.end(request)
    request.close()
    await asyncio.sleep(0)
    assert only_span(exporter).status.status_code == StatusCode.UNSET
    assert spans._open == {}


async def test_a_late_answer_does_not_change_the_producer_span(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """A deadline that passes is an error of the server span only."""
    spans = OtelProducerSpans(tracer, "minilm")
    with tracer.start_as_current_span("server"):
        request = await in_flight(spans)
        spans.end(request)
        request.fail(DeadlineExceededError("late"))
        await asyncio.sleep(0)
    send, server = exporter.get_finished_spans()
    assert send.status.status_code == StatusCode.UNSET
    assert attributes(server) == {"redbatch.error.code": "deadline_exceeded"}
    request.close()


@pytest.mark.parametrize(
    ("error", "expected"), [(JobsFullError("no room"), "jobs_full"), (OSError("no room"), "OSError")]
)
def test_a_failed_job_records_the_error(
    tracer: Tracer, exporter: InMemorySpanExporter, error: Exception, expected: str
) -> None:
    """The span of a failed job has the error's code or class, and not its message."""
    spans = OtelProducerSpans(tracer, "minilm")
    with pytest.raises(type(error)), spans.job(BULK):
        raise error
    span = only_span(exporter)
    assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, expected)
    assert attributes(span)["redbatch.lane"] == "bulk"
    assert "no room" not in span.to_json()
