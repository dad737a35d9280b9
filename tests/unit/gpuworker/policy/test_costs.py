"""What batches cost, as learnt from how long they took."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.costs import CostFit, Costs

DEVICES = [Costs(0.002, 0.003), Costs(0.0025, 0.00011), Costs(0.004, 0.000002), Costs(0.020, 0.0001), Costs(0.0, 0.001)]


def fitted(costs: Costs, sizes: Callable[[random.Random], int], noise: float = 0.05, number: int = 400) -> Costs:
    """Returns what is learnt from so many batches with a relative error of `noise`."""
    rng, fit = random.Random(3), CostFit()
    for _ in range(number):
        tokens = sizes(rng)
        fit.observe(tokens, costs.seconds(tokens) * max(0.1, rng.gauss(1, noise)))
    assert fit.costs is not None
    return fit.costs


@pytest.mark.parametrize("costs", DEVICES)
def test_both_parts_are_found_in_noisy_batches(costs: Costs) -> None:
    """With batches of many sizes and an error of 5 %, any size is predicted within 10 %, the fixed part too."""
    break_even = max(10.0, costs.fixed_s / costs.token_s)
    found = fitted(costs, lambda rng: rng.randint(1, round(4 * break_even)))
    assert found.fixed_s == pytest.approx(costs.fixed_s, rel=0.1, abs=break_even * costs.token_s * 0.05)
    assert found.token_s == pytest.approx(costs.token_s, rel=0.1)


@pytest.mark.parametrize("size", [1, 32, 16_384])
def test_batches_of_one_size_are_predicted_and_say_nothing_of_a_fixed_part(size: int) -> None:
    """All the time goes to the tokens, so that nobody waits for a gain that is not known to be there."""
    costs = Costs(0.049, 0.001)
    found = fitted(costs, lambda _: size)
    assert found.fixed_s <= 0.01 * costs.seconds(size)
    assert found.seconds(size) == pytest.approx(costs.seconds(size), rel=0.05)


def test_what_other_sizes_have_shown_outlives_many_batches_of_one() -> None:
    """A few small batches at the start still tell the parts apart fifty batches later."""
    costs, fit = Costs(0.020, 0.0001), CostFit()
    for tokens in (30, 100, 250, *(1_000 for _ in range(50))):
        fit.observe(tokens, costs.seconds(tokens))
    assert fit.costs is not None
    assert fit.costs.fixed_s == pytest.approx(costs.fixed_s, rel=0.05)


def test_a_device_that_has_become_slower_is_learnt_anew() -> None:
    """A thousand batches after the change, the old costs are forgotten."""
    rng, fit = random.Random(5), CostFit()
    for factor in (1, 3):
        for _ in range(1_000):
            tokens = rng.randint(1, 64)
            fit.observe(tokens, factor * Costs(0.010, 0.001).seconds(tokens))
    assert fit.costs is not None
    assert fit.costs.seconds(32) == pytest.approx(3 * Costs(0.010, 0.001).seconds(32), rel=0.05)


def test_one_batch_that_was_held_up_changes_little() -> None:
    """A stall of ten seconds in a batch of 40 ms moves what is expected by less than a tenth."""
    rng, fit = random.Random(7), CostFit()
    for _ in range(100):
        tokens = rng.randint(1, 64)
        fit.observe(tokens, Costs(0.010, 0.001).seconds(tokens))
    before = fit.costs
    fit.observe(30, 10.0)
    assert before is not None
    assert fit.costs is not None
    for tokens in (1, 30, 64):
        assert fit.costs.seconds(tokens) == pytest.approx(before.seconds(tokens), rel=0.1)


@given(st.lists(st.tuples(st.integers(-5, 100_000), st.floats(-1.0, 1_000.0)), max_size=60))
def test_no_part_is_ever_negative(batches: list[tuple[int, float]]) -> None:
    """Whatever is observed, both parts are finite numbers from zero up; a batch without tokens is passed over."""
    fit = CostFit()
    for tokens, seconds in batches:
        fit.observe(tokens, seconds)
        if fit.costs is not None:
            assert 0 <= fit.costs.fixed_s < math.inf
            assert 0 <= fit.costs.token_s < math.inf
    assert (fit.costs is not None) == any(tokens >= 1 for tokens, _ in batches)
