"""Which inputs of those that wait make the best batch."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given

from gpuworker.policy.batching import plan
from gpuworker.policy.composition import WaitingInput
from gpuworker.policy.limits import Limits
from tests.unit.gpuworker.policy.planning import NOW, limits_strategy, live, padded, run_all, waiting_inputs


@given(waiting_inputs(), limits_strategy)
def test_a_batch_keeps_its_limits(waiting: list[WaitingInput], limits: Limits) -> None:
    """It keeps the maximum number of inputs and of tokens with padding; a single input may be longer."""
    batch = plan(waiting, limits, NOW).batch
    if any(waiting[i].suspect for i in batch):
        return  # an entry runs as a whole
    assert len(batch) <= limits.max_size
    assert len(batch) <= 1 or padded(waiting, batch) <= limits.max_tokens


@given(waiting_inputs(), limits_strategy)
def test_the_oldest_goes_first_past_the_age_bound(waiting: list[WaitingInput], limits: Limits) -> None:
    """Whatever fits better, the batch contains an input that has waited longest, if it has waited too long."""
    batch = plan(waiting, limits, NOW).batch
    if not batch:
        return
    first = min(waiting[i].since for i in live(waiting) if waiting[i].suspect == waiting[batch[0]].suspect)
    if NOW - first >= limits.age_bound_s and not waiting[batch[0]].suspect:
        assert first in [waiting[i].since for i in batch]


@given(waiting_inputs(), limits_strategy)
def test_equals_stay_in_the_order_of_arrival(waiting: list[WaitingInput], limits: Limits) -> None:
    """Of two inputs of one length, the later is not in a batch without the earlier, nor before it."""
    batch = plan(waiting, limits, NOW).batch
    for at, i in enumerate(batch):
        rivals = [j for j in live(waiting) if j < i and waiting[j].tokens == waiting[i].tokens]
        assert waiting[i].suspect or all(j in batch[:at] for j in rivals if not waiting[j].suspect)


def worth(lengths: Sequence[int], limits: Limits) -> float:
    """Returns tokens for the cost."""
    return sum(lengths) / (max(lengths) * len(lengths) + limits.overhead_tokens)


@given(waiting_inputs(), limits_strategy)
def test_no_neighbor_would_improve_a_batch(waiting: list[WaitingInput], limits: Limits) -> None:
    """Not the next shorter input, nor the next longer one, nor one input less gives more tokens for the cost."""
    batch = plan(waiting, limits, NOW).batch
    if not batch or any(waiting[i].suspect for i in batch):
        return
    lengths = sorted(waiting[i].tokens for i in batch)
    first = min(waiting[i].since for i in live(waiting) if not waiting[i].suspect)
    overdue = NOW - first >= limits.age_bound_s
    others = [waiting[i].tokens for i in live(waiting) if i not in batch and not waiting[i].suspect]
    shorter = [tokens for tokens in others if tokens <= lengths[0]]
    longer = [tokens for tokens in others if tokens >= lengths[-1]]
    tried = [[max(shorter), *lengths]] if shorter else []
    tried += [[*lengths, min(longer)]] if longer else []
    tried += [] if overdue or len(lengths) == 1 else [lengths[1:], lengths[:-1]]
    for each in tried:
        if len(each) <= limits.max_size and (len(each) == 1 or each[-1] * len(each) <= limits.max_tokens):
            assert worth(each, limits) <= worth(lengths, limits) + 1e-12


def test_before_the_bound_the_richest_run_goes_and_after_it_the_oldest() -> None:
    """The run with the most tokens for its cost goes, until an input has waited too long."""
    limits = Limits(2, 200, age_bound_s=0.2)
    waiting = [
        WaitingInput(3, 0.0, 9.0),
        WaitingInput(100, 0.1, 9.0),
        WaitingInput(4, 0.1, 9.0),
        WaitingInput(90, 0.1, 9.0),
    ]
    assert plan(waiting, limits, 0.15).batch == (3, 1)
    assert plan(waiting, limits, 0.2).batch == (0, 2)


def test_the_oldest_runs_with_the_neighbors_that_fit_best() -> None:
    """Neighbors in length on both sides join it, while they save more than their padding costs."""
    waiting = [WaitingInput(50, 0.0, 9.0), *(WaitingInput(tokens, 0.1, 9.0) for tokens in (10, 45, 54, 90, 47))]
    batch = plan(waiting, Limits(4, 1_000, age_bound_s=0.0), 1.0).batch
    assert sorted(waiting[i].tokens for i in batch) == [45, 47, 50, 54]


@pytest.mark.parametrize(("overhead_tokens", "together"), [(1.0, [50]), (1_000.0, [10, 50])])
def test_a_higher_fixed_cost_justifies_more_padding(overhead_tokens: float, together: list[int]) -> None:
    """On a device where only the number of batches counts, inputs of any length go together."""
    waiting = [WaitingInput(50, 0.0, 9.0), WaitingInput(10, 0.1, 9.0)]
    batch = plan(waiting, Limits(4, 1_000, overhead_tokens=overhead_tokens), 0.1).batch
    assert [waiting[i].tokens for i in batch] == together


def test_an_older_input_that_arrived_later_keeps_its_place() -> None:
    """One that comes back from a dead worker is older than those that arrived before it."""
    waiting = [*(WaitingInput(5, 1.0, 9.0) for _ in range(6)), WaitingInput(5, 0.0, 9.0), WaitingInput(9, 1.0, 9.0)]
    assert 6 in plan(waiting, Limits(2, 1_000), 1.1).batch


def test_an_input_too_long_for_a_batch_runs_by_itself() -> None:
    """It was already truncated to the model's limit, so it runs."""
    assert plan(
        [WaitingInput(900, 0.0, 9.0), WaitingInput(5, 0.0, 9.0)], Limits(8, 100, age_bound_s=0.0), 0.0
    ).batch == (0,)


def test_little_of_a_batch_is_padding() -> None:
    """For 256 log-normal lengths, as in real traffic, padding is less than a twentieth of the tokens that run."""
    rng = random.Random(7)
    lengths = [min(512, max(3, round(rng.lognormvariate(4.0, 0.8)))) for _ in range(256)]
    batches, _ = run_all([WaitingInput(tokens, 0.0, 1e9) for tokens in lengths], Limits(64, 1_024), run_s=0.0)
    cost = sum(max(lengths[i] for i in batch) * len(batch) for batch in batches)
    assert 1 - sum(lengths) / cost < 0.05


@given(waiting_inputs(), limits_strategy)
def test_a_packed_batch_goes_in_the_order_of_arrival(waiting: list[WaitingInput], limits: Limits) -> None:
    """Without padding, the oldest inputs that fit by the sum of their tokens go, and one more would not fit."""
    limits = limits._replace(packed=True, wait_s=0.0)
    batch = plan(waiting, limits, NOW).batch
    shared = [i for i in live(waiting) if not waiting[i].suspect]
    if not batch or waiting[batch[0]].suspect:
        return
    assert list(batch) == sorted(shared, key=lambda i: waiting[i].since)[: len(batch)]
    assert len(batch) <= limits.max_size
    assert len(batch) == 1 or sum(waiting[i].tokens for i in batch) <= limits.max_tokens
    following = sorted(shared, key=lambda i: waiting[i].since)[: len(batch) + 1]
    if len(following) > len(batch) and len(batch) < limits.max_size:
        assert sum(waiting[i].tokens for i in following) > limits.max_tokens
