"""Where spans go: to a collector, over OTLP, as the OTEL_* variables say."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from redbatch import __version__

log = structlog.get_logger()

SAMPLERS = tuple(
    f"{parent}{name}" for parent in ("", "parentbased_") for name in ("always_on", "always_off", "traceidratio")
)


class Quiet(SpanExporter):
    """An exporter that tells once when it cannot send, and once when it can again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._heard = _Heard()
        self._lost = 0

    def listen(self) -> None:
        """Hears from now on what OpenTelemetry would write into the log."""
        # It has something to say of every batch that is not sent, of every span without room, and of every
        # request whose headers are not as W3C has them, which it quotes: anybody could write into the log.
        everything, sending = logging.getLogger("opentelemetry"), logging.getLogger("opentelemetry.exporter")
        everything.handlers[:], everything.propagate = [logging.NullHandler()], False
        sending.handlers[:] = [self._heard]

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends spans; those that cannot be sent are lost."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - its message may hold what is in the spans
            result, self._heard.last = SpanExportResult.FAILURE, type(error).__qualname__
        if result is SpanExportResult.SUCCESS:
            if self._lost:
                log.info("traces are sent again", lost_spans=self._lost)
            self._lost = 0
        else:
            if not self._lost:
                log.warning("traces cannot be sent", reason=self._heard.last)
            self._lost += len(spans)
        return result

    def shutdown(self) -> None:
        """Sends nothing more."""
        self._exporter.shutdown()


class _Heard(logging.Handler):
    """Keeps the last thing that was said, and writes nothing."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def provider_of(process: str) -> TracerProvider:
    """Returns what makes the spans of a gateway or a worker, and sends them. What has no room in its queue is lost.

    Raises:
        ValueError: some OTEL_* variable makes no sense.
    """
    if process == "gateway":
        _check_sampler()
    provider = bare_provider(process)
    quiet = Quiet(OTLPSpanExporter())
    provider.add_span_processor(BatchSpanProcessor(quiet))
    quiet.listen()  # now that it has read all variables, and warned of those that make no sense
    return provider


def bare_provider(process: str) -> TracerProvider:
    """Returns what makes the spans, and sends them nowhere. The OTEL_* variables win over what it is called here.

    A worker has nothing to choose: it makes spans of what gateways have chosen alone, in traces of which the ids were
    made here, and would say nothing to a sampler.
    """
    own = Resource.create({"service.name": f"redbatch-{process}", "service.version": __version__})
    return TracerProvider(
        sampler=ALWAYS_ON if process == "worker" else None,
        resource=own.merge(OTELResourceDetector().detect()),
        shutdown_on_exit=False,
    )


def _check_sampler() -> None:
    """Raises ValueError for what OpenTelemetry would warn of, and then have every request told."""
    name, ratio = os.environ.get("OTEL_TRACES_SAMPLER", "").lower(), os.environ.get("OTEL_TRACES_SAMPLER_ARG", "")
    if name and name not in SAMPLERS:
        raise ValueError(f"OTEL_TRACES_SAMPLER has to be one of {', '.join(SAMPLERS)}")
    if name.endswith("traceidratio"):
        try:
            is_ratio = 0 <= float(ratio) <= 1
        except ValueError:
            is_ratio = False
        if not is_ratio:
            raise ValueError("OTEL_TRACES_SAMPLER_ARG has to be a number from 0 to 1")
