"""The context of a span as text, as an entry carries it: W3C's `traceparent`."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

MIN_LENGTH, MAX_LENGTH = 55, 128
"""Characters of a `traceparent`: its length today, and with room for additions of later versions."""

_W3C = TraceContextTextMapPropagator()
_EMPTY = Context()


def format_traceparent(span: Span) -> str:
    """Returns the W3C `traceparent` of a span, or "" if the span is not sampled: it is then exported nowhere."""
    carrier: dict[str, str] = {}
    if span.get_span_context().trace_flags.sampled:
        _W3C.inject(carrier, set_span_in_context(span, _EMPTY))
    return carrier.get("traceparent", "")


def parse_parent(traceparent: Sequence[str], tracestate: Sequence[str] = ()) -> Context:
    """Returns the context in these headers; empty if they do not follow W3C, as with two parents."""
    if len(traceparent) != 1 or not MIN_LENGTH <= len(traceparent[0]) <= MAX_LENGTH:
        return _EMPTY
    return _W3C.extract({"traceparent": traceparent, "tracestate": tracestate}, _EMPTY)


def parse_traceparent(traceparent: str) -> SpanContext | None:
    """Returns the span that an entry names; None if the text names no span, or one that is not sampled.

    Any client of Redis may have written the text.
    """
    found = get_current_span(parse_parent([traceparent])).get_span_context()
    return found if found.trace_flags.sampled else None
