"""The budget of bytes that large bodies share."""

from __future__ import annotations

import pytest

from api.http.body import SMALL_BYTES, BodyBudget, Reservation
from shared.errors import TooManyBodiesError


def test_only_large_bodies_use_the_budget() -> None:
    """A body that grows past SMALL_BYTES reserves all of its bytes, and releases the same number."""
    budget = BodyBudget(10 * SMALL_BYTES)
    assert budget.grow(SMALL_BYTES, 4 * SMALL_BYTES)
    assert budget.grow(5 * SMALL_BYTES, SMALL_BYTES)
    assert not budget.grow(0, 5 * SMALL_BYTES)
    assert budget.grow(0, 4 * SMALL_BYTES)
    budget.release(6 * SMALL_BYTES)
    budget.release(SMALL_BYTES)
    assert budget.grow(0, 6 * SMALL_BYTES)
    assert not budget.grow(0, 2 * SMALL_BYTES)


def test_a_single_body_always_fits() -> None:
    """A body that is the only one may exceed the budget: otherwise it would never be read."""
    budget = BodyBudget(1)
    assert budget.grow(0, 2 * SMALL_BYTES)
    assert budget.grow(2 * SMALL_BYTES, SMALL_BYTES)
    assert not budget.grow(0, 2 * SMALL_BYTES)


def test_a_reservation_grows_and_shrinks() -> None:
    """What it does not hold any more is free for others; where there is no memory, it holds none."""
    budget = BodyBudget(10 * SMALL_BYTES)
    first, second = Reservation(budget), Reservation(budget)
    first.resize(6 * SMALL_BYTES)
    with pytest.raises(TooManyBodiesError, match="max_bodies_bytes"):
        second.resize(5 * SMALL_BYTES)
    second.resize(4 * SMALL_BYTES)
    first.resize(SMALL_BYTES)
    second.resize(10 * SMALL_BYTES)
    second.resize(0)
    first.resize(10 * SMALL_BYTES)


def test_small_bodies_that_arrive_have_their_own_part() -> None:
    """Large bodies that fill the budget do not refuse them, and they do not fill the memory either."""
    budget = BodyBudget(8 * SMALL_BYTES)
    assert budget.grow(0, 8 * SMALL_BYTES)
    assert budget.grow_small(SMALL_BYTES)
    assert budget.grow_small(SMALL_BYTES)
    assert not budget.grow_small(1)
    budget.release_small(SMALL_BYTES)
    assert budget.grow_small(SMALL_BYTES)
    assert not budget.grow(0, 2 * SMALL_BYTES)
