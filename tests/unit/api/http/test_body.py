"""The budget of bytes that large bodies share."""

from __future__ import annotations

from api.http.body import SMALL_BYTES, BodyBudget


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
