"""The spans of a gateway, without a server and without Redis."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer

from api.asked import Asked
from api.inflight import InFlight
from api.tracing import Sends, TracedFront
from redbatch.tracing import tracing_of
from redbatch.tracing.provider import bare_provider
from redbatch.tracing.traceparent import context_of
from shared.errors import DeadlineExceeded, JobsFull, Overloaded
from shared.keys import BULK
from shared.messages import Draft, Timing, Vectors

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

ID = "a" * 32


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


async def ask(front: TracedFront, **scope: Any) -> None:  # noqa: ANN401 - what a scope may hold
    """Asks; what is answered is lost."""

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_message: Message) -> None:
        pass

    await front({"type": "http", "method": "POST", "path": "/embed", "headers": []} | scope, receive, send)


async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answers 204."""
    await send({"type": "http.response.start", "status": 204, "headers": []})


async def test_a_method_that_nobody_knows_is_not_named(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """Or anybody could make as many names as they like."""
    await ask(TracedFront(answer, tracer, frozenset()), method="BREW", path="/pot")
    span = the_one(exporter)
    assert (span.name, dict(span.attributes or {})["http.request.method"]) == ("HTTP", "_OTHER")


async def test_what_an_error_says_is_not_told(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """Its message may hold an input; the span ends all the same."""

    async def fail(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError("an input")

    with pytest.raises(ValueError, match="an input"):
        await ask(TracedFront(fail, tracer, frozenset()))
    assert (the_one(exporter).name, the_one(exporter).events) == ("POST /embed", ())
    assert "an input" not in the_one(exporter).to_json()


async def test_log_lines_say_of_which_trace_they_are(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """As long as the request lasts, and no longer."""
    bound: list[dict[str, Any]] = []

    async def look(_scope: Scope, _receive: Receive, _send: Send) -> None:
        bound.append(structlog.contextvars.get_contextvars())

    await ask(TracedFront(look, tracer, frozenset()))
    told = the_one(exporter).get_span_context()
    assert told is not None
    assert bound == [{"trace_id": f"{told.trace_id:032x}", "span_id": f"{told.span_id:016x}"}]
    assert structlog.contextvars.get_contextvars() == {}


@pytest.mark.parametrize(("method", "spans"), [("GET", 0), ("HEAD", 0), ("POST", 1)])
async def test_probes_are_passed_over(tracer: Tracer, exporter: InMemorySpanExporter, method: str, spans: int) -> None:
    """By path and method: under the same path clients of TEI may send texts."""
    await ask(TracedFront(answer, tracer, frozenset({"/"})), method=method, path="/")
    assert len(exporter.get_finished_spans()) == spans


async def in_flight(sends: Sends) -> InFlight:
    """Returns a request that is on its way into the stream."""
    request = InFlight(ID, [Draft(0, 1, 1, b"")], asyncio.get_running_loop().time() + 10, Asked(("a",), 10_000))
    sends.begin(request)
    return request


async def test_entries_name_the_span_of_their_way(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """It ends when they are in the stream, once; and has their request's times on the span of that."""
    sends = Sends(tracer, "minilm")
    with tracer.start_as_current_span("server"):
        request = await in_flight(sends)
        assert exporter.get_finished_spans() == ()
        sends.sent(request)
        sends.sent(request)
        request.take(Vectors(ID, 0, 1, 1, b"1234", Timing(1.0, 2.0, 3, 4.0)))
        await asyncio.sleep(0)
    send, server = exporter.get_finished_spans()
    told = context_of(request.traceparent)
    assert told is not None
    assert told.span_id == send.context.span_id
    times = {name.removeprefix("redbatch."): value for name, value in (server.attributes or {}).items()}
    assert times == {"queue_ms": 1.0, "inference_ms": 2.0, "batch_size": 3, "tokenize_ms": 4.0}


async def test_what_is_refused_was_not_sent(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """The span says why."""
    request = await in_flight(Sends(tracer, "minilm"))
    request.fail(Overloaded("full"))
    await asyncio.sleep(0)
    span = the_one(exporter)
    assert (span.status.status_code, dict(span.attributes or {})["error.type"]) == (StatusCode.ERROR, "overloaded")
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
    assert dict(server.attributes or {}) == {"redbatch.error.code": "deadline_exceeded"}
    request.close()


def test_a_job_that_is_refused_says_why(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """By its code, and not by the message."""
    sends = Sends(tracer, "minilm")
    with pytest.raises(JobsFull), sends.job(BULK):
        raise JobsFull("no room")
    told = dict(the_one(exporter).attributes or {})
    assert (told["error.type"], told["redbatch.lane"]) == ("jobs_full", "bulk")
    assert "no room" not in the_one(exporter).to_json()
