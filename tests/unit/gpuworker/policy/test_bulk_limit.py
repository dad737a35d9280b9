"""How large a batch may be with bulk in it, while interactive inputs come."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.costs import Costs
from gpuworker.policy.bulk_limit import GROWTH, LATELY_S, Guests

COSTS = Costs(fixed_s=0.010, token_s=0.0002)
costs = st.builds(Costs, fixed_s=st.floats(0, 0.02), token_s=st.floats(1e-6, 1e-3))


NOW, EVERY_S = 10 * LATELY_S, 0.01
MANY = 100_000
"""Tokens of bulk in a batch: what one may have was seen before."""


def guests_at(rate: int, each: int, *, stretch: float = 1.2, runners: int = 1, beside: int = MANY) -> Guests:
    """Returns what has seen so many inputs a second, each of so many tokens, until now."""
    guests, inputs = Guests(stretch, runners), round(rate * EVERY_S)
    for tick in range(round(NOW / EVERY_S) + 1):
        guests.began(inputs, inputs * each, beside, tick * EVERY_S)
    return guests


def test_without_guests_there_is_no_bound() -> None:
    """Nobody has come; and nothing is known yet of what batches take."""
    guests = Guests(1.2, 1)
    assert guests.bulk_tokens(COSTS, 0.0) is None
    guests.began(0, 0, MANY, 0.0)
    assert guests.bulk_tokens(COSTS, 0.0) is None
    guests.began(1, 10, MANY, 0.0)
    assert guests.bulk_tokens(None, 0.0) is None
    assert guests.bulk_tokens(COSTS, 0.0) is not None


def test_the_bound_ends_a_while_after_the_last_guest() -> None:
    """Bulk has all of the device then."""
    guests = Guests(1.2, 1)
    guests.began(1, 10, MANY, 5.0)
    assert guests.bulk_tokens(COSTS, 5.0 + LATELY_S) is not None
    assert guests.bulk_tokens(COSTS, 5.1 + LATELY_S) is None


@pytest.mark.parametrize("stretch", [1.0, 1.2, 2.0])
def test_a_batch_takes_so_much_longer_than_one_of_guests_alone(stretch: float) -> None:
    """3,000 tokens a second take 0.6 of the device: alone, batches of 10 / (1 - 0.6) ms follow each other."""
    guests = guests_at(rate=300, each=10, stretch=stretch)
    bound = guests.bulk_tokens(COSTS, NOW)
    assert bound is not None
    assert COSTS.seconds(bound) == pytest.approx(stretch * 0.025, rel=0.02)


def test_those_who_come_are_spread_over_the_runners() -> None:
    """Each of two has half of them: 0.3 of its time."""
    bound = guests_at(rate=300, each=10, stretch=1.0, runners=2).bulk_tokens(COSTS, NOW)
    assert bound is not None
    assert COSTS.seconds(bound) == pytest.approx(0.010 / 0.7, rel=0.02)


@given(costs, st.floats(1, 10), st.integers(1, 512))
def test_there_is_room_for_as_much_as_one_guest_takes(of: Costs, stretch: float, tokens: int) -> None:
    """However few come: a device that waits for them would do nothing else."""
    guests = Guests(stretch, 1)
    guests.began(1, tokens, MANY, 0.0)
    bound = guests.bulk_tokens(of, 0.0)
    assert bound is None or bound >= tokens


@given(st.floats(0.1, 2.9))
def test_the_fewer_come_the_less_room_is_beside_them(past_s: float) -> None:
    """Until none has come for long."""
    guests = guests_at(rate=300, each=10)
    before, after = guests.bulk_tokens(COSTS, NOW), guests.bulk_tokens(COSTS, NOW + past_s)
    assert before is not None
    assert after is not None
    assert after <= before


def test_who_is_too_much_for_the_device_bounds_nothing_else() -> None:
    """Batches are as full as they may be then, whatever is in them: bulk has its share of the turns."""
    bound = guests_at(rate=600, each=10).bulk_tokens(COSTS, NOW)
    assert bound is not None
    assert bound > MANY


def test_a_batch_that_takes_the_same_whatever_is_in_it_has_no_bound() -> None:
    """Bulk in it costs nobody anything."""
    guests = Guests(1.2, 1)
    guests.began(1, 10, MANY, 0.0)
    bound = guests.bulk_tokens(Costs(0.01, 0.0), 0.0)
    assert bound is not None
    assert bound > MANY


def test_a_batch_is_little_larger_than_the_largest_lately() -> None:
    """Where larger ones seem to cost nothing, it takes some until one is large; and none while bulk takes no room."""
    guests, flat = guests_at(rate=300, each=10, beside=0), Costs(0.01, 0.0)
    for _ in range(20):
        assert guests.bulk_tokens(flat, NOW) == math.ceil(GROWTH * 30)
        guests.began(3, 30, 0, NOW)
    for _ in range(10):
        bound = guests.bulk_tokens(flat, NOW)
        assert bound is not None
        guests.began(0, 0, bound, NOW)
        assert guests.bulk_tokens(flat, NOW) == math.ceil(GROWTH * bound)


def test_the_bound_shrinks_at_once() -> None:
    """As soon as it is known what a batch costs."""
    guests = guests_at(rate=300, each=10)
    flat, bound = guests.bulk_tokens(Costs(0.01, 0.0), NOW), guests.bulk_tokens(COSTS, NOW)
    assert flat is not None
    assert bound is not None
    assert COSTS.seconds(bound) == pytest.approx(1.2 * 0.025, rel=0.02)
    assert flat > MANY


def test_how_large_batches_were_is_forgotten() -> None:
    """By and by, as batches come that are not."""
    guests, flat = guests_at(rate=300, each=10), Costs(0.01, 0.0)
    for _ in range(1_000):
        guests.began(3, 30, 0, NOW)
    assert guests.bulk_tokens(flat, NOW) == math.ceil(GROWTH * 30)


def test_how_many_come_in_a_while() -> None:
    """By the rate of the last seconds."""
    guests = guests_at(rate=300, each=10)
    assert guests.coming(0.01, NOW) == pytest.approx(3, rel=0.02)
    assert guests.coming(0.01, NOW + 20 * LATELY_S) < 1e-6
    assert Guests(1.2, 1).coming(1.0, NOW) == 0.0
