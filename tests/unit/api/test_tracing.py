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

from api.dialects.request import Asked
from api.dispatch.inflight import InFlight
from api.tracing import Sends, TracedFront
from shared.process.tracing import tracing_of
from shared.process.tracing.provider import bare_provider
from shared.process.tracing.traceparent import context_of
from shared.errors import DeadlineExceeded, JobsFull, Overloaded
from shared.keys import BULK
from shared.messages import Draft, Timing, Vectors

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

ID = "a" * 32
PARENT = f"00-{'a' * 32}-{'b' * 16}-01".encode()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Keeps the spans that have ended."""
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> Tracer:
    """Makes spans."""
    provider = bare_provider("gateway")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return tracing_of(provider).tracer


def the_one(exporter: InMemorySpanExporter) -> ReadableSpan:
    """Returns the only span."""
    [span] = exporter.get_finished_spans()
    return span


def told(span: ReadableSpan) -> dict[str, Any]:
    """Returns what is said of a span."""
    return dict(span.attributes or {})


async def ask(front: TracedFront, **scope: Any) -> None:  # noqa: ANN401 - what a scope may hold
    """Asks; what is answered is lost."""

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_message: Message) -> None:
        pass

    asked = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/embed", "headers": []}
    await front(asked | scope, receive, send)


async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answers 204."""
    await send({"type": "http.response.start", "status": 204, "headers": []})


async def test_what_is_said_of_a_request(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """All of it; its query may hold anything, and is left out."""
    host = (b"host", b"example.com:8080")
    await ask(TracedFront(answer, tracer, frozenset()), scheme="https", query_string=b"key=secret", headers=[host])
    assert told(the_one(exporter)) == {
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
async def test_a_server_is_called_as_its_client_calls_it(
    tracer: Tracer, exporter: InMemorySpanExporter, host: str, expected: tuple[str | None, int | None]
) -> None:
    """As far as that makes sense: a number that OTLP has no room for would cost other spans too."""
    await ask(TracedFront(answer, tracer, frozenset()), headers=[(b"host", host.encode())])
    said = told(the_one(exporter))
    assert (said.get("server.address"), said.get("server.port")) == expected


async def test_a_method_that_nobody_knows_names_no_span(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """Or anybody could make as many names as they like."""
    await ask(TracedFront(answer, tracer, frozenset()), method="BREW", path="/pot")
    span = the_one(exporter)
    methods = [told(span)[f"http.request.method{which}"] for which in ("", "_original")]
    assert (span.name, methods) == ("HTTP", ["_OTHER", "BREW"])


@pytest.mark.parametrize("begun", [False, True])
async def test_what_an_error_says_is_not_told(tracer: Tracer, exporter: InMemorySpanExporter, begun: bool) -> None:
    """Its message may hold an input. That there was one is told, also of an answer that had begun well."""

    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path_format="/jobs/{id}/result")
        if begun:
            await answer(scope, receive, send)
        raise ValueError("an input")

    with pytest.raises(ValueError, match="an input"):
        await ask(TracedFront(fail, tracer, frozenset()), method="GET", path="/jobs/1/result")
    span = the_one(exporter)
    assert (span.name, span.events) == ("GET /jobs/{id}/result", ())
    assert (span.status.status_code, told(span)["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert told(span).get("http.response.status_code") == (204 if begun else None)
    assert "an input" not in span.to_json()


async def test_a_request_that_is_cancelled_is_no_error(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """Its client has left."""

    async def leave(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await ask(TracedFront(leave, tracer, frozenset()))
    span = the_one(exporter)
    assert (span.name, span.status.status_code) == ("POST /embed", StatusCode.UNSET)


@pytest.mark.parametrize("parents", [1, 2])
async def test_headers_that_come_twice(tracer: Tracer, exporter: InMemorySpanExporter, parents: int) -> None:
    """As W3C has it: the fields of `tracestate` are one list, and of two parents there is none."""
    states = [(b"tracestate", b"a=1"), (b"tracestate", b"b=2")]
    await ask(TracedFront(answer, tracer, frozenset()), headers=[(b"traceparent", PARENT)] * parents + states)
    span = the_one(exporter)
    assert (span.parent is not None) == (parents == 1)
    assert dict(span.context.trace_state) == ({"a": "1", "b": "2"} if parents == 1 else {})


async def test_log_lines_say_of_which_trace_they_are(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """As long as the request lasts, and no longer."""
    bound: list[dict[str, Any]] = []

    async def look(_scope: Scope, _receive: Receive, _send: Send) -> None:
        bound.append(structlog.contextvars.get_contextvars())

    await ask(TracedFront(look, tracer, frozenset()))
    context = the_one(exporter).context
    assert bound == [{"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}]
    assert structlog.contextvars.get_contextvars() == {}


@pytest.mark.parametrize(("method", "spans"), [("GET", 0), ("HEAD", 0), ("POST", 1)])
async def test_probes_are_passed_over(tracer: Tracer, exporter: InMemorySpanExporter, method: str, spans: int) -> None:
    """By path and method: under the same path clients of TEI may send texts."""
    await ask(TracedFront(answer, tracer, frozenset({"/"})), method=method, path="/")
    assert len(exporter.get_finished_spans()) == spans


async def in_flight(sends: Sends) -> InFlight:
    """Returns a request that is on its way into the stream."""
    drafts = [Draft(0, 2, 1, b""), Draft(2, 1, 1, b"")]
    request = InFlight(ID, drafts, asyncio.get_running_loop().time() + 10, Asked(("a",), 10_000))
    sends.begin(request)
    return request


async def test_entries_name_the_span_of_their_way(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """It ends when they are in the stream, once; and has their request's times on the span of that: of the slowest."""
    sends = Sends(tracer, "minilm")
    sends.client = "gateway"
    with tracer.start_as_current_span("server"):
        request = await in_flight(sends)
        assert exporter.get_finished_spans() == ()
        sends.sent(request)
        sends.sent(request)
        request.take(Vectors(ID, 0, 2, 1, b"12345678", Timing(1.0, 20.0, 3, 4.0)))
        request.take(Vectors(ID, 2, 1, 1, b"1234", Timing(5.0, 6.0, 7, 8.0)))
        await asyncio.sleep(0)
    send, server = exporter.get_finished_spans()
    context = context_of(request.traceparent)
    assert context is not None
    assert context.span_id == send.context.span_id
    assert told(send) == {
        "messaging.batch.message_count": 2,
        "messaging.client.id": "gateway",
        "messaging.destination.name": "minilm",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.system": "redis",
        "redbatch.inputs": 3,
        "redbatch.lane": "interactive",
    }
    assert told(server) == {
        "redbatch.queue_ms": 1.0,
        "redbatch.tokenize_ms": 4.0,
        "redbatch.inference_ms": 20.0,
        "redbatch.batch_size": 3,
    }


async def test_entries_of_what_is_not_sampled_name_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker has to read what it would not tell."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    request = await in_flight(Sends(tracing_of(bare_provider("gateway")).tracer, "minilm"))
    assert request.traceparent == ""
    request.close()


async def test_a_request_goes_on_without_its_span() -> None:
    """Whatever keeps that from being made."""
    sends = Sends(cast("Tracer", None), "minilm")
    with capture_logs() as logs:
        request = await in_flight(sends)
        sends.sent(request)
    assert (request.done, request.traceparent) == (False, "")
    assert all(line["event"] == "spans are lost" for line in logs)
    request.close()


async def test_what_is_refused_was_not_sent(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """The span says why."""
    request = await in_flight(Sends(tracer, "minilm"))
    request.fail(Overloaded("full"))
    await asyncio.sleep(0)
    span = the_one(exporter)
    assert (span.status.status_code, told(span)["error.type"]) == (StatusCode.ERROR, "overloaded")
    request.close()


@pytest.mark.parametrize("sent", [True, False])
async def test_a_client_that_leaves_ends_the_span(tracer: Tracer, exporter: InMemorySpanExporter, sent: bool) -> None:
    """It is no error; and nothing is kept of it."""
    sends = Sends(tracer, "minilm")
    request = await in_flight(sends)
    if sent:
        sends.sent(request)
    request.close()
    await asyncio.sleep(0)
    assert the_one(exporter).status.status_code == StatusCode.UNSET
    assert sends._open == {}


async def test_an_answer_that_comes_too_late_does_not_change_what_was_sent(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    """That is the server's error."""
    sends = Sends(tracer, "minilm")
    with tracer.start_as_current_span("server"):
        request = await in_flight(sends)
        sends.sent(request)
        request.fail(DeadlineExceeded("late"))
        await asyncio.sleep(0)
    send, server = exporter.get_finished_spans()
    assert send.status.status_code == StatusCode.UNSET
    assert told(server) == {"redbatch.error.code": "deadline_exceeded"}
    request.close()


@pytest.mark.parametrize(("error", "expected"), [(JobsFull("no room"), "jobs_full"), (OSError("no room"), "OSError")])
def test_a_job_that_is_not_made_says_why(
    tracer: Tracer, exporter: InMemorySpanExporter, error: Exception, expected: str
) -> None:
    """By its code or its kind, and not by the message."""
    sends = Sends(tracer, "minilm")
    with pytest.raises(type(error)), sends.job(BULK):
        raise error
    span = the_one(exporter)
    assert (span.status.status_code, told(span)["error.type"]) == (StatusCode.ERROR, expected)
    assert told(span)["redbatch.lane"] == "bulk"
    assert "no room" not in span.to_json()
