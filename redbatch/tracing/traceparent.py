"""The context of a span as text, as it travels with an entry: W3C's `traceparent`."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_W3C = TraceContextTextMapPropagator()
_NOTHING = Context()


def traceparent_of(span: Span) -> str:
    """Returns what says of which span something is part; "" if nobody could tell."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span, _NOTHING))
    return carrier.get("traceparent", "")


def parent_in(headers: Mapping[str, str]) -> Context:
    """Returns what `traceparent` and `tracestate` of some headers say; nothing, if they are not what W3C has said."""
    return _W3C.extract(headers, _NOTHING)


def context_of(traceparent: str) -> SpanContext | None:
    """Returns the span that an entry names; None for text that names none: anybody may write to Redis."""
    found = get_current_span(parent_in({"traceparent": traceparent})).get_span_context()
    return found if found.is_valid else None
