"""The context of a span as text, as it travels with an entry: W3C's `traceparent`."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

SHORTEST, LONGEST = 55, 128
"""Characters of a `traceparent`: as it is today, and with room for what a later version may add to it."""

_W3C = TraceContextTextMapPropagator()
_NOTHING = Context()


def traceparent_of(span: Span) -> str:
    """Returns what says of which span something is part; "" of one that is not sampled, as nobody will tell of it."""
    carrier: dict[str, str] = {}
    if span.get_span_context().trace_flags.sampled:
        _W3C.inject(carrier, set_span_in_context(span, _NOTHING))
    return carrier.get("traceparent", "")


def parent_in(traceparent: Sequence[str], tracestate: Sequence[str] = ()) -> Context:
    """Returns what the headers of these names say; nothing, if they are not what W3C has said, as of two parents."""
    if len(traceparent) != 1 or not SHORTEST <= len(traceparent[0]) <= LONGEST:
        return _NOTHING
    return _W3C.extract({"traceparent": traceparent, "tracestate": tracestate}, _NOTHING)


def context_of(traceparent: str) -> SpanContext | None:
    """Returns the span that an entry names; None for text that names none, or one that is not sampled.

    Anybody may write to Redis.
    """
    found = get_current_span(parent_in([traceparent])).get_span_context()
    return found if found.trace_flags.sampled else None
