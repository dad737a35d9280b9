"""Traces: what travels as text, who is sampled, and a collector that is away."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from structlog.testing import capture_logs

from redbatch import tracing
from redbatch.tracing import Tracing, start_tracing, tracing_of
from redbatch.tracing.provider import CHATTY, Quiet, bare_provider
from redbatch.tracing.traceparent import context_of, traceparent_of

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def loggers_as_they_were() -> Iterator[None]:
    """Has OpenTelemetry's loggers speak again."""
    yield
    for name in CHATTY:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


def context(trace_id: int, *, sampled: bool, remote: bool = True) -> SpanContext:
    """Returns a span of another process."""
    return SpanContext(trace_id, 1, remote, TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT))


def test_a_traceparent_is_read_as_it_was_written() -> None:
    """Trace, span and whether it is sampled."""
    found = context_of(TRACEPARENT)
    assert found is not None
    assert found.is_remote
    assert traceparent_of(NonRecordingSpan(found)) == TRACEPARENT


@pytest.mark.parametrize(
    "text",
    ["", "x", "00-1-2-01", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01", f"ff{TRACEPARENT[2:]}"],
)
def test_what_names_no_span_is_none(text: str) -> None:
    """As W3C has it, zeros name none either, and version ff is none."""
    assert context_of(text) is None


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """What is in Redis may be anything."""
    found = context_of(text)
    assert found is None or found.is_valid


@pytest.mark.parametrize(
    ("sampler", "links", "expected"),
    [
        ("parentbased_always_on", [True], True),
        ("parentbased_always_on", [False], False),
        ("parentbased_always_on", [False, True, False], True),
        ("parentbased_always_on", [], True),
        ("parentbased_always_off", [True], True),
        ("always_off", [True], False),
        ("always_on", [False], True),
    ],
)
def test_a_batch_is_sampled_if_one_of_its_requests_is(
    monkeypatch: pytest.MonkeyPatch, sampler: str, links: list[bool], expected: bool
) -> None:
    """By the sampler that is set, asked of each; what is below the batch goes where that goes."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    tracer = tracing_of(bare_provider("worker")).tracer
    to = [Link(context(number + 1, sampled=each)) for number, each in enumerate(links)]
    batch = tracer.start_span("batch", links=to, attributes={"a": 1})
    assert batch.is_recording() == expected
    stage = tracer.start_span("stage", set_span_in_context(batch), attributes={"b": 2})
    assert stage.is_recording() == expected
    if isinstance(batch, ReadableSpan) and isinstance(stage, ReadableSpan):
        assert (dict(batch.attributes or {}), dict(stage.attributes or {})) == ({"a": 1}, {"b": 2})


def test_gateway_and_worker_decide_alike_by_a_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch's own trace has another id, which would decide otherwise."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    gateway, worker = (tracing_of(bare_provider(name)).tracer for name in ("gateway", "worker"))
    for _ in range(50):
        request = gateway.start_span("request")
        batch = worker.start_span("batch", links=[Link(request.get_span_context())])
        assert request.is_recording() == batch.is_recording()


def test_the_usual_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service is called as they say, or else by its process; it has what else they say."""
    assert bare_provider("gateway").resource.attributes["service.name"] == "redbatch-gateway"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    found = bare_provider("gateway").resource.attributes
    assert (found["service.name"], found["deployment.environment.name"]) == ("mine", "test")


class Moody(SpanExporter):
    """An exporter that sends when it `can`."""

    can = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Complains aloud when it cannot."""
        if not self.can:
            logging.getLogger(f"{CHATTY[0]}.otlp").error("no way for %d", len(spans))
        return SpanExportResult.SUCCESS if self.can else SpanExportResult.FAILURE


@pytest.mark.usefixtures("loggers_as_they_were")
def test_a_collector_that_is_away_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often it is tried; with the reason, and what was lost when it is back."""
    moody = Moody()
    quiet = Quiet(moody)
    spans = cast("list[ReadableSpan]", [None] * 3)
    with capture_logs() as logs:
        for _ in range(5):
            quiet.export(spans)
        moody.can = True
        for _ in range(5):
            quiet.export(spans)
    assert logs == [
        {"event": "traces cannot be sent", "log_level": "warning", "reason": "no way for 3"},
        {"event": "traces are sent again", "log_level": "info", "lost_spans": 15},
    ]
    assert caplog.records == []


def test_a_process_does_not_wait_for_its_last_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are given some time, and no more."""
    monkeypatch.setattr(tracing, "STOP_S", 0.05)
    leaves = threading.Event()
    stuck = SimpleNamespace(shutdown=leaves.wait)
    began = time.monotonic()
    Tracing(cast("Any", None), cast("TracerProvider", stuck)).stop()
    assert time.monotonic() - began < 5
    leaves.set()


def test_variables_that_make_no_sense_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], loggers_as_they_were: None
) -> None:
    """A line of OpenTelemetry's own, and no traceback."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    with pytest.raises(SystemExit) as left:
        start_tracing("otlp", "gateway")
    assert left.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("redbatch: OTEL_* variables: max_export_batch_size")


def test_off_is_nothing() -> None:
    """No tracer, and no import: in a process of its own, in which nothing else can have imported it."""
    assert start_tracing("off", "gateway") is None
    code = (
        "import sys; from redbatch.tracing import start_tracing; start_tracing('off', 'gateway');"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
