"""How much a worker may claim."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.adaptive_limits import max_runner_tokens
from gpuworker.policy.batching import plan
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.credits import HORIZON_S, Credit, HeldLoad, claim_window, compute_credit, min_held_tokens
from gpuworker.policy.limits import Limits

COUNTS = st.integers(0, 10_000)


def test_idle_worker_of_unknown_rate_may_claim_its_minimum() -> None:
    """Before the first batch is measured, a worker may claim its window and the tokens of two batches."""
    assert compute_credit(HeldLoad(0, 0, 0), 256, 0.0, 2_048) == Credit(256, 2_048)


def test_measured_rate_raises_the_tokens() -> None:
    """A fast engine may hold what it runs within the horizon."""
    assert compute_credit(HeldLoad(0, 0, 0), 256, 50_000.0, 2_048) == Credit(256, int(50_000 * HORIZON_S))


def test_slow_engine_still_holds_two_batches() -> None:
    """However slow the engine, one batch runs and one is ready."""
    assert compute_credit(HeldLoad(1, 100, 1), 256, 10.0, 2_048) == Credit(255, 1_948)


def test_full_window_or_full_horizon_gives_nothing() -> None:
    """Either limit alone stops claiming."""
    assert compute_credit(HeldLoad(256, 10, 256), 256, 0.0, 2_048) is None
    assert compute_credit(HeldLoad(3, 2_048, 3), 256, 0.0, 2_048) is None


@given(COUNTS, COUNTS, st.integers(1, 10_000), st.floats(0, 1e6), st.integers(1, 100_000))
def test_held_load_and_credit_never_exceed_the_limits(
    entries: int, tokens: int, window: int, rate: float, min_tokens: int
) -> None:
    """Together they stay within the window and the horizon; a credit is never empty."""
    allowed = compute_credit(HeldLoad(entries, tokens, entries), window, rate, min_tokens)
    if allowed is None:
        assert entries >= window or tokens >= max(min_tokens, int(rate * HORIZON_S))
        return
    assert allowed.entries > 0
    assert allowed.tokens > 0
    assert entries + allowed.entries <= window
    assert tokens + allowed.tokens <= max(min_tokens, int(rate * HORIZON_S))


def test_the_window_of_the_default_batch_size_is_256() -> None:
    """Smaller batches have the same one, to sort by length."""
    assert [claim_window(size) for size in (1, 8, 64, 65, 1_000, 10_000)] == [256, 256, 256, 260, 4_000, 40_000]


@given(st.integers(1, 10_000), st.booleans())
def test_with_a_backlog_each_batch_of_single_inputs_is_full_and_the_next_is_claimed_ahead(
    max_size: int, prepares_ahead: bool
) -> None:
    """Up to a max_batch_size of 10,000, a worker that holds its window runs full batches, and holds another one."""
    limits, window = Limits(max_size, 16_384, packed=True), claim_window(max_size)
    running = 0
    for _ in range(8):
        waiting = window - running  # everything that the window allows has been claimed while a batch ran
        total = waiting + (running if prepares_ahead else 0)
        batch = min(max_size, waiting, max_runner_tokens(total, 1, limits))
        assert batch == max_size
        assert waiting - batch >= max_size
        running = batch


def test_a_plan_of_many_waiting_inputs_has_more_than_256() -> None:
    """The plan has no other limit than the maximum size."""
    waiting = [WaitingInput(1, 0.0, 1e9) for _ in range(4_000)]
    assert len(plan(waiting, Limits(1_000, 16_384, packed=True), 0.1).batch) == 1_000


@given(st.integers(1, 10_000), st.integers(1, 1_000), st.integers(1, 10_000))
def test_a_model_without_tokens_may_hold_full_batches_of_any_inputs(max_size: int, cost: int, held_inputs: int) -> None:
    """Each input counts as one token in its batches, whatever the gateway estimated: the tokens limit no batch."""
    held = HeldLoad(held_inputs, held_inputs * cost, held_inputs)
    min_tokens = min_held_tokens(held, 16_384, max_size, has_tokens=False)
    assert min_tokens >= 4 * max_size * cost
    assert min_tokens == max(32_768, 4 * max_size * cost)


def test_a_model_with_tokens_may_hold_those_of_two_full_batches() -> None:
    """So may any model before it holds anything."""
    assert min_held_tokens(HeldLoad(10, 10_000, 10), 512, 64, has_tokens=True) == 1_024
    assert min_held_tokens(HeldLoad(0, 0, 0), 16_384, 64, has_tokens=False) == 32_768
