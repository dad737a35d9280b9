"""The destination of spans: a collector, over OTLP, configured by the OTEL_* variables."""

from __future__ import annotations

import os

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from shared.process.tracing.quiet_exporter import QuietExporter
from shared.process.version import __version__

log = structlog.get_logger()

SAMPLERS = tuple(
    f"{parent}{name}" for parent in ("", "parentbased_") for name in ("always_on", "always_off", "traceidratio")
)


def create_provider(process: str) -> TracerProvider:
    """Returns the provider of a gateway or a worker, which sends its spans. Spans beyond its queue are lost.

    Raises:
        ValueError: an OTEL_* variable is invalid.
    """
    if process == "gateway":
        _check_sampler()
    provider = create_bare_provider(process)
    quiet = QuietExporter(OTLPSpanExporter())
    provider.add_span_processor(BatchSpanProcessor(quiet))
    quiet.capture_messages()  # after it has read all variables, and warned of invalid ones
    return provider


def create_bare_provider(process: str) -> TracerProvider:
    """Returns a provider that sends its spans nowhere. OTEL_* variables win over the names set here.

    A worker makes no choice: it creates spans only for requests that gateways have sampled, in traces whose ids were
    created here, which would mean nothing to a sampler.
    """
    own = Resource.create({"service.name": f"redbatch-{process}", "service.version": __version__})
    return TracerProvider(
        sampler=ALWAYS_ON if process == "worker" else None,
        resource=own.merge(OTELResourceDetector().detect()),
        shutdown_on_exit=False,
    )


def _check_sampler() -> None:
    """Raises ValueError for values that OpenTelemetry would only warn of, and then sample every request."""
    name, ratio = os.environ.get("OTEL_TRACES_SAMPLER", "").lower(), os.environ.get("OTEL_TRACES_SAMPLER_ARG", "")
    if name and name not in SAMPLERS:
        raise ValueError(f"OTEL_TRACES_SAMPLER must be one of {', '.join(SAMPLERS)}")
    if name.endswith("traceidratio"):
        try:
            is_ratio = 0 <= float(ratio) <= 1
        except ValueError:
            is_ratio = False
        if not is_ratio:
            raise ValueError("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1")
