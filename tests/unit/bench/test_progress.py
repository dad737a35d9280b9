"""Estimates of the remaining time."""

from __future__ import annotations

from bench.progress import RemainingTime


def test_the_plan_is_taken_at_the_speed_so_far() -> None:
    """At half the planned speed, the rest takes twice as long; the current step counts minus its elapsed time."""
    remaining = RemainingTime(planned_s=100, done_s=20, step_s=10, took_s=40)
    assert remaining.left_s(40) == 160
    assert remaining.left_s(50) == 150


def test_a_step_that_is_late_does_not_shorten_the_others() -> None:
    """The remaining time of a late step is 0, not negative."""
    assert RemainingTime(planned_s=100, done_s=20, step_s=10, took_s=20).left_s(500) == 70


def test_before_the_first_step_ends_the_plan_is_used() -> None:
    """The speed is unknown until then."""
    assert RemainingTime(planned_s=100, done_s=0, step_s=10, took_s=0).left_s(4) == 96
