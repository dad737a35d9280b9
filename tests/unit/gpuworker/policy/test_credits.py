"""How much a worker may claim."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.adaptive_limits import max_runner_tokens
from gpuworker.policy.batching import plan
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.credits import HORIZON_S, Credit, HeldLoad, compute_credit, default_claim_window, min_held_tokens
from gpuworker.policy.limits import Limits
from shared.long_entries import min_long_tokens

COUNTS = st.integers(0, 10_000)


def claim_all(
    costs: Iterable[int], limits: Limits, tokens_per_s: float, *, has_tokens: bool = True, is_alone: bool = False
) -> list[int]:
    """Claims interactive entries of one input each, with these tokens, as long as the credit allows; returns theirs."""
    claimed: list[int] = []
    tokens = counted_tokens = 0
    for cost in costs:
        held = HeldLoad(len(claimed), tokens, len(claimed), counted_tokens)
        min_tokens = min_held_tokens(held, limits.max_tokens, limits.max_size, has_tokens=has_tokens)
        window = default_claim_window(limits.max_size)
        if compute_credit(held, window, tokens_per_s, min_tokens, is_alone=is_alone) is None:
            break
        claimed.append(cost)
        tokens += cost
        counted_tokens += min(cost, limits.min_long_tokens or cost)
    return claimed


def test_idle_worker_of_unknown_rate_may_claim_its_minimum() -> None:
    """Before the first batch is measured, a worker may claim its window and the tokens of two batches."""
    assert compute_credit(HeldLoad(0, 0, 0, 0), 256, 0.0, 2_048, is_alone=False) == Credit(256, 2_048)


def test_measured_rate_raises_the_tokens() -> None:
    """A fast engine may hold what it runs within the horizon."""
    assert compute_credit(HeldLoad(0, 0, 0, 0), 256, 50_000.0, 2_048, is_alone=False) == Credit(
        256, int(50_000 * HORIZON_S)
    )


def test_slow_engine_still_holds_two_batches() -> None:
    """However slow the engine, one batch runs and one is ready."""
    assert compute_credit(HeldLoad(1, 100, 1, 100), 256, 10.0, 2_048, is_alone=False) == Credit(255, 1_948)


def test_full_window_or_full_horizon_gives_nothing() -> None:
    """Either limit alone stops claiming."""
    assert compute_credit(HeldLoad(256, 10, 256, 10), 256, 0.0, 2_048, is_alone=False) is None
    assert compute_credit(HeldLoad(3, 2_048, 3, 2_048), 256, 0.0, 2_048, is_alone=False) is None


@given(COUNTS, COUNTS, st.integers(1, 10_000), st.floats(0, 1e6), st.integers(1, 100_000))
def test_held_load_and_credit_never_exceed_the_limits(
    entries: int, tokens: int, window: int, rate: float, min_tokens: int
) -> None:
    """Together they stay within the window and the horizon; a credit is never empty."""
    allowed = compute_credit(HeldLoad(entries, tokens, entries, tokens), window, rate, min_tokens, is_alone=False)
    if allowed is None:
        assert entries >= window or tokens >= max(min_tokens, int(rate * HORIZON_S))
        return
    assert allowed.entries > 0
    assert allowed.tokens > 0
    assert entries + allowed.entries <= window
    assert tokens + allowed.tokens <= max(min_tokens, int(rate * HORIZON_S))


def test_the_window_of_the_default_batch_size_is_256() -> None:
    """Smaller batches have the same one, to sort by length."""
    assert [default_claim_window(size) for size in (1, 8, 64, 65, 1_000, 10_000)] == [256, 256, 256, 260, 4_000, 40_000]


@given(st.integers(1, 10_000), st.booleans())
def test_with_a_backlog_each_batch_of_single_inputs_is_full_and_the_next_is_claimed_ahead(
    max_size: int, prepares_ahead: bool
) -> None:
    """Up to a max_batch_size of 10,000, a worker that holds its window runs full batches, and holds another one."""
    limits, window = Limits(max_size, 16_384, packed=True), default_claim_window(max_size)
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


@given(st.integers(1, 2_000), st.integers(1, 1_000))
def test_a_model_without_tokens_may_hold_full_batches_of_any_inputs(max_size: int, cost: int) -> None:
    """Each input counts as one token in its batches, whatever the gateway estimated: the tokens limit no batch."""
    claimed = claim_all(repeat(cost), Limits(max_size, 16_384), 0.0, has_tokens=False)
    assert len(claimed) >= 4 * max_size


@given(st.integers(1, 1_000), st.integers(16, 16_384))
def test_a_model_with_tokens_holds_two_full_batches(cost: int, batch_tokens: int) -> None:
    """Whatever their inputs, unless these fill the window before; and nothing more that was not needed for this."""
    limits = Limits(64, batch_tokens)
    claimed = claim_all(repeat(cost), limits, 0.0)
    assert sum(claimed) >= 2 * batch_tokens or len(claimed) == default_claim_window(64)
    assert sum(claimed[:-1]) < 2 * batch_tokens


def test_short_entries_behind_a_few_long_ones_are_claimed() -> None:
    """A long entry counts as one that is just long: it alone would be more than the horizon of this engine."""
    limits = Limits(32, 1_024, min_long_tokens=512)
    claimed = claim_all([16_384, *[8] * 100], limits, 6_000.0)
    assert len(claimed) == 101


@given(st.lists(st.integers(1, 20_000), min_size=300, max_size=300), st.floats(100, 100_000), st.integers(16, 16_384))
def test_a_worker_claims_nothing_while_it_holds_seconds_of_work(
    costs: list[int], tokens_per_s: float, batch_tokens: int
) -> None:
    """Even if it is in long entries: when it claims, it holds less than 10 s of work, or than 4 full batches."""
    limits = Limits(1_000, batch_tokens, min_long_tokens=min_long_tokens(batch_tokens))
    held = claim_all(costs, limits, tokens_per_s)[:-1]
    assert sum(held) < max(10 * tokens_per_s, 4 * batch_tokens)


def test_a_worker_that_is_alone_holds_any_number_of_long_entries() -> None:
    """No other worker could run them, and the short ones behind them would wait: only the window is a bound."""
    limits = Limits(32, 1_024, min_long_tokens=1)
    costs = [16_384] * 300
    assert len(claim_all(costs, limits, 6_000.0, is_alone=True)) == default_claim_window(32)
    assert len(claim_all(costs, limits, 6_000.0)) == 4
