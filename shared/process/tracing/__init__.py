"""Traces of requests with OpenTelemetry, which is an extra: it is imported only if `tracing` is on.

Runs in gateways and workers.

- suppress_errors: an error in tracing costs only the spans.
- quiet_exporter: exports spans without filling the log when the collector is away.
- tracer_provider: the destination of spans, a collector.
- traceparent: the context of a span as text.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from shared.process.settings import EXIT_CONFIGURATION, flag_of, print_error, variable_of
from shared.process.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

STOP_S = 3.0
"""A collector that does not answer must not keep a process from stopping."""

MISSING = (
    f"{flag_of('tracing')} ({variable_of('tracing')}): otlp needs OpenTelemetry, and {{}} is not installed: "
    "pip install -e '.[tracing]' in the checkout"
)


class Tracing(NamedTuple):
    """The tracer of a process; `provider` sends its spans to the collector."""

    tracer: Tracer
    provider: TracerProvider

    def stop(self) -> None:
        """Sends the remaining spans, as far as possible within STOP_S."""
        last = threading.Thread(target=self.provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(STOP_S)


def start_tracing(tracing: str, process: str) -> Tracing | None:
    """Returns the tracer of a `process` (gateway, worker); None if `tracing` is off.

    Exits the process with code 2 and a line on stderr if the extra is not installed, the sampler's OTEL_* variables are
    invalid, or OpenTelemetry rejects another of them: it accepts most, and warns in the log.
    """
    if tracing == "off":
        return None
    try:
        from shared.process.tracing.tracer_provider import create_provider  # noqa: PLC0415 - it imports OpenTelemetry, an extra
    except ModuleNotFoundError as error:
        print_error(MISSING.format(error.name))
        raise SystemExit(EXIT_CONFIGURATION) from None
    try:
        return create_tracing(create_provider(process))
    except ValueError as error:
        print_error(f"OTEL_* variables: {error}")
        raise SystemExit(EXIT_CONFIGURATION) from None


def create_tracing(provider: TracerProvider) -> Tracing:
    """Returns a tracer of the provider, together with the provider."""
    return Tracing(provider.get_tracer("redbatch", __version__), provider)
