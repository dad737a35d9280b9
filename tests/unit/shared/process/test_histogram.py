"""A histogram is exposed as the client library's own is, but for the time of its creation."""

from __future__ import annotations

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from shared.process.histogram import Histogram

BOUNDS = (0.001, 0.5, 1, 64, 32_768)


def exposed(registry: CollectorRegistry) -> list[str]:
    """Returns the lines of /metrics."""
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


@given(st.lists(st.floats(0, 1e6) | st.sampled_from(BOUNDS)))
def test_amounts_are_counted_as_by_the_library(amounts: list[float]) -> None:
    """An amount that equals a bound is within it; those beyond the last are in the one without a bound."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("a_seconds", "An amount", BOUNDS, ours)
    reference = prometheus_client.Histogram("a_seconds", "An amount", buckets=BOUNDS, registry=theirs)
    for amount in amounts:
        histogram.observe(amount)
        reference.observe(amount)
    assert exposed(ours) == exposed(theirs)


def test_a_name_is_registered_once() -> None:
    """As with the library's."""
    registry = CollectorRegistry()
    Histogram("a_seconds", "An amount", BOUNDS, registry)
    with pytest.raises(ValueError, match="Duplicated"):
        Histogram("a_seconds", "An amount", BOUNDS, registry)
