"""How much a worker may claim."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.credits import HORIZON_S, Credit, HeldLoad, compute_credit

COUNTS = st.integers(0, 10_000)


def test_idle_worker_of_unknown_rate_may_claim_its_minimum() -> None:
    """Before the first batch is measured, a worker may claim its window and the tokens of two batches."""
    assert compute_credit(HeldLoad(0, 0), 256, 0.0, 2_048) == Credit(256, 2_048)


def test_measured_rate_raises_the_tokens() -> None:
    """A fast engine may hold what it runs within the horizon."""
    assert compute_credit(HeldLoad(0, 0), 256, 50_000.0, 2_048) == Credit(256, int(50_000 * HORIZON_S))


def test_slow_engine_still_holds_two_batches() -> None:
    """However slow the engine, one batch runs and one is ready."""
    assert compute_credit(HeldLoad(1, 100), 256, 10.0, 2_048) == Credit(255, 1_948)


def test_full_window_or_full_horizon_gives_nothing() -> None:
    """Either limit alone stops claiming."""
    assert compute_credit(HeldLoad(256, 10), 256, 0.0, 2_048) is None
    assert compute_credit(HeldLoad(3, 2_048), 256, 0.0, 2_048) is None


@given(COUNTS, COUNTS, st.integers(1, 10_000), st.floats(0, 1e6), st.integers(1, 100_000))
def test_held_load_and_credit_never_exceed_the_limits(
    entries: int, tokens: int, window: int, rate: float, min_tokens: int
) -> None:
    """Together they stay within the window and the horizon; a credit is never empty."""
    allowed = compute_credit(HeldLoad(entries, tokens), window, rate, min_tokens)
    if allowed is None:
        assert entries >= window or tokens >= max(min_tokens, int(rate * HORIZON_S))
        return
    assert allowed.entries > 0
    assert allowed.tokens > 0
    assert entries + allowed.entries <= window
    assert tokens + allowed.tokens <= max(min_tokens, int(rate * HORIZON_S))
