"""Traces: their text form, sampling, and a collector that is down."""

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
from opentelemetry.trace import NonRecordingSpan
from structlog.testing import capture_logs

from shared.process import tracing
from shared.process.tracing import Tracing, create_tracing, start_tracing
from shared.process.tracing.quiet_exporter import QuietExporter
from shared.process.tracing.suppress_errors import suppress_errors
from shared.process.tracing.traceparent import format_traceparent, parse_parent, parse_traceparent
from shared.process.tracing.tracer_provider import create_bare_provider
from shared.process.version import __version__

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def restore_loggers() -> Iterator[None]:
    """Restores OpenTelemetry's loggers."""
    yield
    for name in ("opentelemetry", "opentelemetry.exporter"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


def of_opentelemetry(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Returns the records of OpenTelemetry's loggers: asyncio may write of an earlier test at any time."""
    return [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_a_traceparent_is_read_as_it_was_written() -> None:
    """Trace, span and the sampled flag survive the text form."""
    found = parse_traceparent(TRACEPARENT)
    assert found is not None
    assert found.is_remote
    assert format_traceparent(NonRecordingSpan(found)) == TRACEPARENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "00-1-2-01",
        f"{TRACEPARENT[:-1]}0",
        f"{TRACEPARENT}-{'x' * 500}",
        f"00-{'0' * 32}-{'1' * 16}-01",
        f"00-{'1' * 32}-{'0' * 16}-01",
        f"ff{TRACEPARENT[2:]}",
    ],
)
def test_what_names_no_span_is_none(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """By W3C zeros and version ff name no span. An unsampled span counts as none; no log line is written."""
    assert parse_traceparent(text) is None
    assert of_opentelemetry(caplog) == []


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """Any text from Redis is parsed without an error."""
    found = parse_traceparent(text)
    assert found is None or found.is_valid


@pytest.mark.usefixtures("restore_loggers")
@pytest.mark.parametrize("tracestate", ["a text of somebody's", "a=1,a=2", "a=" + "x" * 1000, "a=\xe9"])
def test_what_a_client_sends_is_not_logged(caplog: pytest.LogCaptureFixture, tracestate: str) -> None:
    """OpenTelemetry would quote headers that it cannot parse; these are not logged."""
    QuietExporter(FlakyExporter()).capture_messages()
    for traceparent in (TRACEPARENT, TRACEPARENT + "-" + "x" * 600):
        parse_parent([traceparent], [tracestate])
    assert of_opentelemetry(caplog) == []


@pytest.mark.parametrize(("process", "expected"), [("gateway", False), ("worker", True)])
def test_gateways_decide_what_is_sampled(monkeypatch: pytest.MonkeyPatch, process: str, expected: bool) -> None:
    """A worker samples everything that gateways have sampled: the traces of its batches have different ids."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    assert create_tracing(create_bare_provider(process)).tracer.start_span("batch").is_recording() == expected


def test_the_usual_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_* variables set the service name and attributes; the default name is that of the process."""
    found = create_bare_provider("gateway").resource.attributes
    assert (found["service.name"], found["service.version"]) == ("redbatch-gateway", __version__)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    found = create_bare_provider("gateway").resource.attributes
    assert (found["service.name"], found["deployment.environment.name"]) == ("mine", "test")


class FlakyExporter(SpanExporter):
    """An exporter that sends when it `can`, and otherwise logs an error, or raises `to_raise`."""

    can = False
    to_raise: Exception | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends nothing."""
        if self.to_raise is not None:
            raise self.to_raise
        if not self.can:
            logging.getLogger("opentelemetry.exporter.otlp").error("no way for %d", len(spans))
        return SpanExportResult.SUCCESS if self.can else SpanExportResult.FAILURE


@pytest.mark.usefixtures("restore_loggers")
def test_a_collector_that_is_down_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A failing collector is logged once, with the reason, and its return with the number of lost spans."""
    exporter = FlakyExporter()
    quiet = QuietExporter(exporter)
    quiet.capture_messages()
    spans = cast("list[ReadableSpan]", [None] * 3)
    with capture_logs() as logs:
        for _ in range(5):
            quiet.export(spans)
        exporter.can = True
        for _ in range(5):
            quiet.export(spans)
    assert logs == [
        {"event": "traces cannot be sent", "log_level": "warning", "reason": "no way for 3"},
        {"event": "traces are sent again", "log_level": "info", "lost_spans": 15},
    ]
    assert of_opentelemetry(caplog) == []


@pytest.mark.usefixtures("restore_loggers")
def test_an_exporter_that_raises_is_logged_once() -> None:
    """The log holds the type of the error only: its message may hold content of a span."""
    exporter = FlakyExporter()
    exporter.to_raise = ValueError("a text")
    quiet = QuietExporter(exporter)
    quiet.capture_messages()
    with capture_logs() as logs:
        results = [quiet.export(cast("list[ReadableSpan]", [None])) for _ in range(3)]
    assert results == [SpanExportResult.FAILURE] * 3
    assert logs == [{"event": "traces cannot be sent", "log_level": "warning", "reason": "ValueError"}]


def test_a_part_that_raises_is_logged_once() -> None:
    """The error is logged once, and the caller goes on."""

    @suppress_errors
    def part(number: int) -> None:
        done.append(1 // number)

    done: list[int] = []
    with capture_logs() as logs:
        for number in (1, 0, 0, 1):
            part(number)
    assert done == [1, 1]
    assert [(line["event"], line["part"].rpartition(".")[2]) for line in logs] == [("spans are lost", "part")]


def test_a_process_does_not_wait_for_its_last_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop waits at most STOP_S for the last spans."""
    monkeypatch.setattr(tracing, "STOP_S", 0.05)
    leaves = threading.Event()
    stuck = SimpleNamespace(shutdown=leaves.wait)
    began = time.monotonic()
    Tracing(cast("Any", None), cast("TracerProvider", stuck)).stop()
    assert time.monotonic() - began < 60
    leaves.set()


@pytest.mark.usefixtures("restore_loggers")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "1"}, "max_export_batch_size"),
        ({"OTEL_TRACES_SAMPLER": "ratio"}, "OTEL_TRACES_SAMPLER must be one of always_on, "),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, "OTEL_TRACES_SAMPLER_ARG must be a number"),
        *(
            (
                {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": each},
                "OTEL_TRACES_SAMPLER_ARG",
            )
            for each in ("1%", "1.5", "nan")
        ),
    ],
)
def test_invalid_variables_are_reported(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    expected: str,
) -> None:
    """An invalid variable gives one line and no traceback, instead of sampling every request."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as left:
        start_tracing("otlp", "gateway")
    assert left.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"redbatch: OTEL_* variables: {expected}")


@pytest.mark.usefixtures("restore_loggers")
def test_a_worker_leaves_it_to_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler that is unknown here, set for a whole cluster, does not keep a worker from starting."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "jaeger_remote")
    started = start_tracing("otlp", "worker")
    assert started is not None
    started.stop()


@pytest.mark.usefixtures("restore_loggers")
@pytest.mark.parametrize(("sampler", "ratio"), [("", ""), ("Always_On", "x"), ("parentbased_traceidratio", "0.01")])
def test_valid_variables_are_accepted(monkeypatch: pytest.MonkeyPatch, sampler: str, ratio: str) -> None:
    """Values are read as OpenTelemetry reads them: an empty one is unset, and case does not matter."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    started = start_tracing("otlp", "gateway")
    assert started is not None
    started.stop()


@pytest.mark.usefixtures("restore_loggers")
def test_a_variable_that_is_not_understood_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start OpenTelemetry may still write into the log."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "soon")
    started = start_tracing("otlp", "gateway")
    assert started is not None
    started.stop()
    assert of_opentelemetry(caplog) != []
    assert logging.getLogger("opentelemetry").propagate is False


def test_off_is_nothing() -> None:
    """Without tracing there is no tracer, and no import: tested in a new process, in which nothing else imports it."""
    assert start_tracing("off", "gateway") is None
    code = (
        "import sys; from shared.process.tracing import start_tracing; start_tracing('off', 'gateway');"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
