"""How large a batch that contains bulk may be while interactive inputs arrive."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.bulk_limit import GROWTH, RECENT_S, BulkBatchLimit
from gpuworker.policy.costs import Costs

COSTS = Costs(fixed_s=0.010, token_s=0.0002)
costs = st.builds(Costs, fixed_s=st.floats(0, 0.02), token_s=st.floats(1e-6, 1e-3))


NOW, INTERVAL_S = 10 * RECENT_S, 0.01
LARGE = 100_000
"""Tokens of bulk in a batch, more than any limit here: recent batches are no limit."""


def limit_at(
    rate: int, input_tokens: int, *, stretch: float = 1.2, runners: int = 1, bulk_tokens: int = LARGE
) -> BulkBatchLimit:
    """Returns the limit after this many inputs a second, each of `input_tokens`, until NOW."""
    limit, inputs = BulkBatchLimit(stretch, runners), round(rate * INTERVAL_S)
    for tick in range(round(NOW / INTERVAL_S) + 1):
        limit.record_start(inputs, inputs * input_tokens, bulk_tokens, tick * INTERVAL_S)
    return limit


def test_without_interactive_inputs_there_is_no_limit() -> None:
    """Nor is there one before the costs of batches are known."""
    limit = BulkBatchLimit(1.2, 1)
    assert limit.max_bulk_tokens(COSTS, 0.0) is None
    limit.record_start(0, 0, LARGE, 0.0)
    assert limit.max_bulk_tokens(COSTS, 0.0) is None
    limit.record_start(1, 10, LARGE, 0.0)
    assert limit.max_bulk_tokens(None, 0.0) is None
    assert limit.max_bulk_tokens(COSTS, 0.0) is not None


def test_the_limit_ends_after_the_last_interactive_input() -> None:
    """Bulk has the whole device then."""
    limit = BulkBatchLimit(1.2, 1)
    limit.record_start(1, 10, LARGE, 5.0)
    assert limit.max_bulk_tokens(COSTS, 5.0 + RECENT_S) is not None
    assert limit.max_bulk_tokens(COSTS, 5.1 + RECENT_S) is None


@pytest.mark.parametrize("stretch", [1.0, 1.2, 2.0])
def test_a_batch_takes_stretch_times_one_of_interactive_inputs(stretch: float) -> None:
    """3,000 tokens a second take 0.6 of the device: alone, batches of 10 / (1 - 0.6) ms follow each other."""
    limit = limit_at(rate=300, input_tokens=10, stretch=stretch)
    max_tokens = limit.max_bulk_tokens(COSTS, NOW)
    assert max_tokens is not None
    assert COSTS.seconds(max_tokens) == pytest.approx(stretch * 0.025, rel=0.02)


def test_arrivals_are_spread_over_the_runners() -> None:
    """Each of two runners has half of them: 0.3 of its time."""
    max_tokens = limit_at(rate=300, input_tokens=10, stretch=1.0, runners=2).max_bulk_tokens(COSTS, NOW)
    assert max_tokens is not None
    assert COSTS.seconds(max_tokens) == pytest.approx(0.010 / 0.7, rel=0.02)


@given(costs, st.floats(1, 10), st.integers(1, 512))
def test_the_limit_is_at_least_one_interactive_input(of: Costs, stretch: float, tokens: int) -> None:
    """However few arrive, bulk may take the tokens of one input: a device that only waits for them would be idle."""
    limit = BulkBatchLimit(stretch, 1)
    limit.record_start(1, tokens, LARGE, 0.0)
    max_tokens = limit.max_bulk_tokens(of, 0.0)
    assert max_tokens is None or max_tokens >= tokens


@given(st.floats(0.1, 2.9))
def test_the_limit_falls_with_the_rate_of_arrival(past_s: float) -> None:
    """Until none has arrived for long."""
    limit = limit_at(rate=300, input_tokens=10)
    before, after = limit.max_bulk_tokens(COSTS, NOW), limit.max_bulk_tokens(COSTS, NOW + past_s)
    assert before is not None
    assert after is not None
    assert after <= before


def test_an_overloaded_device_has_no_limit() -> None:
    """Batches are then as full as possible, whatever they contain: bulk has its share of the turns."""
    max_tokens = limit_at(rate=600, input_tokens=10).max_bulk_tokens(COSTS, NOW)
    assert max_tokens is not None
    assert max_tokens > LARGE


def test_if_tokens_cost_nothing_there_is_no_limit() -> None:
    """Bulk then delays no interactive input."""
    limit = BulkBatchLimit(1.2, 1)
    limit.record_start(1, 10, LARGE, 0.0)
    max_tokens = limit.max_bulk_tokens(Costs(0.01, 0.0), 0.0)
    assert max_tokens is not None
    assert max_tokens > LARGE


def test_a_batch_is_little_larger_than_the_largest_recent_one() -> None:
    """If larger batches seem to cost nothing, they grow step by step; and not at all while bulk takes no room."""
    limit, flat = limit_at(rate=300, input_tokens=10, bulk_tokens=0), Costs(0.01, 0.0)
    for _ in range(20):
        assert limit.max_bulk_tokens(flat, NOW) == math.ceil(GROWTH * 30)
        limit.record_start(3, 30, 0, NOW)
    for _ in range(10):
        max_tokens = limit.max_bulk_tokens(flat, NOW)
        assert max_tokens is not None
        limit.record_start(0, 0, max_tokens, NOW)
        assert limit.max_bulk_tokens(flat, NOW) == math.ceil(GROWTH * max_tokens)


def test_the_limit_shrinks_at_once() -> None:
    """As soon as the costs of a batch are known."""
    limit = limit_at(rate=300, input_tokens=10)
    flat, max_tokens = limit.max_bulk_tokens(Costs(0.01, 0.0), NOW), limit.max_bulk_tokens(COSTS, NOW)
    assert flat is not None
    assert max_tokens is not None
    assert COSTS.seconds(max_tokens) == pytest.approx(1.2 * 0.025, rel=0.02)
    assert flat > LARGE


def test_the_size_of_old_batches_is_forgotten() -> None:
    """Smaller batches replace it step by step."""
    limit, flat = limit_at(rate=300, input_tokens=10), Costs(0.01, 0.0)
    for _ in range(1_000):
        limit.record_start(3, 30, 0, NOW)
    assert limit.max_bulk_tokens(flat, NOW) == math.ceil(GROWTH * 30)


def test_expected_inputs_follow_the_recent_rate() -> None:
    """By the rate of the last seconds."""
    limit = limit_at(rate=300, input_tokens=10)
    assert limit.expected_inputs(0.01, NOW) == pytest.approx(3, rel=0.02)
    assert limit.expected_inputs(0.01, NOW + 20 * RECENT_S) < 1e-6
    assert BulkBatchLimit(1.2, 1).expected_inputs(1.0, NOW) == 0.0
