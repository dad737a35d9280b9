"""Traces of requests, by OpenTelemetry, which is an extra: nothing of it is imported unless `tracing` is on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from redbatch import __version__
from shared.process.settings import EXIT_CONFIGURATION, complain, flag_of, variable_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

STOP_S = 3.0
"""A collector that does not answer must not keep a process from leaving."""

MISSING = (
    f"{flag_of('tracing')} ({variable_of('tracing')}): otlp needs OpenTelemetry, and {{}} is not installed: "
    "pip install 'redbatch[tracing]'"
)


class Tracing(NamedTuple):
    """A process' own tracer; `provider` sends its spans to the collector."""

    tracer: Tracer
    provider: TracerProvider

    def stop(self) -> None:
        """Sends what is left, as far as that is possible within STOP_S."""
        last = threading.Thread(target=self.provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(STOP_S)


def start_tracing(tracing: str, process: str) -> Tracing | None:
    """Returns what a `process` (gateway, worker) makes its spans with; None if `tracing` is off.

    Leaves the process with exit code 2 and a line on stderr when the extra is not installed, the sampler's OTEL_*
    variables make no sense, or OpenTelemetry refuses another of them: it takes most, and warns in the log.
    """
    if tracing == "off":
        return None
    try:
        from shared.process.tracing.provider import provider_of
    except ModuleNotFoundError as error:
        complain(MISSING.format(error.name))
        raise SystemExit(EXIT_CONFIGURATION) from None
    try:
        return tracing_of(provider_of(process))
    except ValueError as error:
        complain(f"OTEL_* variables: {error}")
        raise SystemExit(EXIT_CONFIGURATION) from None


def tracing_of(provider: TracerProvider) -> Tracing:
    """Returns what makes spans by a provider."""
    return Tracing(provider.get_tracer("redbatch", __version__), provider)
