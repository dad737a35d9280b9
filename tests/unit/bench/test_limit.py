"""The limit, and shares of the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.limit import Limit, is_possible, mean_tokens, sorted_batches

WAYS = {"slow": 4.0, "fast": 2.0}
LIMIT = Limit(WAYS, {"fast, tuned": 1.5}, {"two at once": 1.0}, texts=2, tokens=(10, 30, 20))


def test_the_fastest_method_is_the_limit() -> None:
    """The limit is the minimum time with one batch after the other; tuned and concurrent times are separate."""
    assert LIMIT.best_s == 2.0
    assert LIMIT.tuned_s == 1.5
    assert LIMIT.fastest_s == 1.0
    assert LIMIT.methods == {"slow": 4.0, "fast": 2.0, "fast, tuned": 1.5, "two at once": 1.0}


def test_tuned_times_count_only_if_they_are_faster() -> None:
    """A tuned time slower than the limit does not change the limit."""
    assert Limit(WAYS, {"fast, tuned": 2.5}, {}, texts=2, tokens=(1,)).tuned_s == 2.0


def test_without_concurrent_batches_the_limit_is_the_fastest_of_all() -> None:
    """A device that runs one batch at a time has no concurrent times."""
    assert Limit(WAYS, {"slow, tuned": 3.0}, {}, texts=2, tokens=(1,)).fastest_s == 2.0


def test_a_share_compares_tokens() -> None:
    """Longer texts at the same rate are a larger share; the offline tokens are those of the timed texts only."""
    assert LIMIT.share(1.0, 20.0, seconds=2.0) == pytest.approx(1.0)
    assert LIMIT.share(1.0, 10.0, seconds=2.0) == pytest.approx(0.5)
    assert LIMIT.share(1.0, 20.0, seconds=1.0) == pytest.approx(0.5)


def test_the_mean_length_wraps_around_at_the_end_of_the_texts() -> None:
    """Requests cycle through the texts."""
    assert mean_tokens((10, 30, 20), 0, 3) == 20
    assert mean_tokens((10, 30, 20), 2, 4) == 15
    assert mean_tokens((10, 30, 20), 300, 302) == 20


def test_serving_above_the_limit_is_impossible() -> None:
    """A share up to 1.03 is plausible, because the machine's speed drifts; a larger one is not."""
    assert is_possible(0.5)
    assert is_possible(1.03)
    assert not is_possible(1.031)


@given(st.lists(st.integers(1, 256), max_size=200), st.sampled_from([128, 512, 2_048]), st.integers(1, 64))
def test_batches_hold_each_text_once_within_their_bounds(lengths: list[int], max_tokens: int, max_size: int) -> None:
    """Batches are sorted by length and within both bounds, padding included; a text over the token bound runs alone."""
    batches = list(sorted_batches(lengths, max_tokens, max_size))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = max(lengths[i] for i in batch) * len(batch)
        assert len(batch) <= max_size
        assert padded <= max_tokens or len(batch) == 1
    flat = [lengths[i] for batch in batches for i in batch]
    assert flat == sorted(lengths, reverse=True)
