"""An exporter of spans that does not fill the log when the collector is away."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = structlog.get_logger()


class QuietExporter(SpanExporter):
    """An exporter that logs once when it cannot send, and once when it can again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._handler = _LastMessageHandler()
        self._lost = 0

    def capture_messages(self) -> None:
        """Captures, from now on, the messages that OpenTelemetry would write into the log."""
        # OpenTelemetry logs every batch that is not sent, every span without room in the queue, and every request
        # whose headers do not follow W3C, which it quotes: any client could write into the log.
        everything, sending = logging.getLogger("opentelemetry"), logging.getLogger("opentelemetry.exporter")
        everything.handlers[:], everything.propagate = [logging.NullHandler()], False
        sending.handlers[:] = [self._handler]

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends spans; those that cannot be sent are lost."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - its message may hold content of the spans
            result, self._handler.last = SpanExportResult.FAILURE, type(error).__qualname__
        if result is SpanExportResult.SUCCESS:
            if self._lost:
                log.info("traces are sent again", lost_spans=self._lost)
            self._lost = 0
        else:
            if not self._lost:
                log.warning("traces cannot be sent", reason=self._handler.last)
            self._lost += len(spans)
        return result

    def shutdown(self) -> None:
        """Stops sending."""
        self._exporter.shutdown()


class _LastMessageHandler(logging.Handler):
    """Keeps the last message, and writes nothing."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()
