"""Where spans go: to a collector, over OTLP, as the OTEL_* variables say."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, TraceState, get_current_span, set_span_in_context
from opentelemetry.util.types import Attributes

from redbatch import __version__

log = structlog.get_logger()

CHATTY = ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal")
"""Loggers that have something to say of every batch of spans that is not sent, and of every span without room."""


class Linked(Sampler):
    """Has a batch traced if one of its requests is: it has no parent, and is linked to these.

    Args:
        own: decides for each of the requests: from its context, a parent's, or from the id of its trace. So what a
            gateway has decided, a worker with the same sampler decides too.
    """

    def __init__(self, own: Sampler) -> None:
        self._own = own

    def should_sample(  # noqa: PLR0913, PLR0917 - as OpenTelemetry has it
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Returns what one of the links is reason for; what has a parent in this process goes where that went."""
        parent = get_current_span(parent_context).get_span_context()
        if parent.is_valid and not parent.is_remote:
            decision = Decision.RECORD_AND_SAMPLE if parent.trace_flags.sampled else Decision.DROP
            return SamplingResult(decision, attributes, parent.trace_state)
        own = self._own.should_sample
        if parent.is_valid or not links:
            return own(parent_context, trace_id, name, kind, attributes, links, trace_state)
        for each in links:
            told = set_span_in_context(NonRecordingSpan(each.context), Context())
            result = own(told, each.context.trace_id, name, kind, attributes, links, trace_state)
            if result.decision is not Decision.DROP:
                break
        return result

    def get_description(self) -> str:
        """Says what it is."""
        return f"Linked{{{self._own.get_description()}}}"


class Quiet(SpanExporter):
    """An exporter that tells once when it cannot send, and once when it can again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._heard = _Heard()
        self._lost = 0
        for name in CHATTY:
            logger = logging.getLogger(name)
            logger.handlers[:], logger.propagate = [self._heard], False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends spans; those that cannot be sent are lost."""
        result = self._exporter.export(spans)
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
    """Returns what makes the spans of a gateway or a worker, and sends them. What has no room in its queue is lost."""
    provider = bare_provider(process)
    provider.add_span_processor(BatchSpanProcessor(Quiet(OTLPSpanExporter())))
    return provider


def bare_provider(process: str) -> TracerProvider:
    """Returns what makes the spans, and sends them nowhere. The OTEL_* variables win over what it is called here."""
    own = Resource.create({"service.name": f"redbatch-{process}", "service.version": __version__})
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.sampler = Linked(provider.sampler)
    return provider
