"""How much a worker may claim."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.credits import HORIZON_S, Credit, Held, credit

COUNTS = st.integers(0, 10_000)


def test_idle_worker_of_unknown_rate_may_claim_its_least() -> None:
    """Before the first batch was measured, a worker takes its window and the tokens of two batches."""
    assert credit(Held(0, 0), 256, 0.0, 2_048) == Credit(256, 2_048)


def test_measured_rate_raises_the_tokens() -> None:
    """A fast engine may hold what it runs within the horizon."""
    assert credit(Held(0, 0), 256, 50_000.0, 2_048) == Credit(256, int(50_000 * HORIZON_S))


def test_slow_engine_still_holds_two_batches() -> None:
    """However slow the engine, one batch runs and one is ready."""
    assert credit(Held(1, 100), 256, 10.0, 2_048) == Credit(255, 1_948)


def test_full_window_or_full_horizon_gives_nothing() -> None:
    """Either bound alone stops claiming."""
    assert credit(Held(256, 10), 256, 0.0, 2_048) is None
    assert credit(Held(3, 2_048), 256, 0.0, 2_048) is None


@given(COUNTS, COUNTS, st.integers(1, 10_000), st.floats(0, 1e6), st.integers(1, 100_000))
def test_what_is_held_and_allowed_never_passes_the_bounds(
    entries: int, tokens: int, window: int, rate: float, least: int
) -> None:
    """Held and credit together stay within the window and the horizon; a credit is never empty."""
    allowed = credit(Held(entries, tokens), window, rate, least)
    if allowed is None:
        assert entries >= window or tokens >= max(least, int(rate * HORIZON_S))
        return
    assert allowed.entries > 0
    assert allowed.tokens > 0
    assert entries + allowed.entries <= window
    assert tokens + allowed.tokens <= max(least, int(rate * HORIZON_S))
