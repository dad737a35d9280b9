"""What batches cost, as learned from how long they took."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.costs import CostFit, Costs

DEVICES = [Costs(0.002, 0.003), Costs(0.0025, 0.00011), Costs(0.004, 0.000002), Costs(0.020, 0.0001), Costs(0.0, 0.001)]


def fit_costs(costs: Costs, sizes: Callable[[random.Random], int], noise: float = 0.05, number: int = 400) -> Costs:
    """Returns the costs learned from `number` batches with a relative error of `noise`."""
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
    fitted_costs = fit_costs(costs, lambda rng: rng.randint(1, round(4 * break_even)))
    assert fitted_costs.fixed_s == pytest.approx(costs.fixed_s, rel=0.1, abs=break_even * costs.token_s * 0.05)
    assert fitted_costs.token_s == pytest.approx(costs.token_s, rel=0.1)


@pytest.mark.parametrize("size", [1, 32, 16_384])
def test_batches_of_one_size_have_no_fixed_part(size: int) -> None:
    """All their time goes to the tokens, so that no engine waits for a gain that may not exist."""
    costs = Costs(0.049, 0.001)
    fitted_costs = fit_costs(costs, lambda _: size)
    assert fitted_costs.fixed_s <= 0.01 * costs.seconds(size)
    assert fitted_costs.seconds(size) == pytest.approx(costs.seconds(size), rel=0.05)


def test_a_few_other_sizes_outlive_many_batches_of_one() -> None:
    """A few small batches at the start still separate the parts fifty batches later."""
    costs, fit = Costs(0.020, 0.0001), CostFit()
    for tokens in (30, 100, 250, *(1_000 for _ in range(50))):
        fit.observe(tokens, costs.seconds(tokens))
    assert fit.costs is not None
    assert fit.costs.fixed_s == pytest.approx(costs.fixed_s, rel=0.05)


def test_a_device_that_has_become_slower_is_learned_again() -> None:
    """A thousand batches after the change, the old costs are forgotten."""
    rng, fit = random.Random(5), CostFit()
    for factor in (1, 3):
        for _ in range(1_000):
            tokens = rng.randint(1, 64)
            fit.observe(tokens, factor * Costs(0.010, 0.001).seconds(tokens))
    assert fit.costs is not None
    assert fit.costs.seconds(32) == pytest.approx(3 * Costs(0.010, 0.001).seconds(32), rel=0.05)


def test_one_batch_that_was_held_up_changes_little() -> None:
    """A stall of ten seconds in a batch of 40 ms changes the prediction by less than a tenth."""
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
    """Whatever is observed, both parts are finite and not negative; a batch without tokens is ignored."""
    fit = CostFit()
    for tokens, seconds in batches:
        fit.observe(tokens, seconds)
        if fit.costs is not None:
            assert 0 <= fit.costs.fixed_s < math.inf
            assert 0 <= fit.costs.token_s < math.inf
    assert (fit.costs is not None) == any(tokens >= 1 for tokens, _ in batches)


@pytest.mark.parametrize("later", [0, 500])
def test_a_larger_batch_than_the_latest_takes_at_least_as_long_as_these(later: int) -> None:
    """Not more, since the fixed part is unknown; a larger batch of long ago tells nothing of the device of today."""
    fit = CostFit()
    for _ in range(10):
        fit.observe(3, 0.4)
    if later:
        fit.observe(300, 30.0)
    for _ in range(later):
        fit.observe(3, 0.4)
    assert fit.costs is not None
    assert fit.costs.seconds(300) > 30
    assert fit.costs.least_seconds(300) == pytest.approx(0.4, rel=0.1)
    fit.observe(300, 0.5)
    assert fit.costs.least_seconds(300) < 30
