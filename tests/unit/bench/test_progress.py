"""How long it will take."""

from __future__ import annotations

from bench.progress import RemainingTime


def test_the_plan_is_taken_at_the_speed_so_far() -> None:
    """Half as fast as planned: what is left takes twice as long, the running step less what it has had."""
    remaining = RemainingTime(planned_s=100, done_s=20, step_s=10, took_s=40)
    assert remaining.left_s(40) == 160
    assert remaining.left_s(50) == 150


def test_a_step_that_is_late_does_not_shorten_the_others() -> None:
    """Nor does it count below nothing."""
    assert RemainingTime(planned_s=100, done_s=20, step_s=10, took_s=20).left_s(500) == 70


def test_before_anything_is_done_the_plan_is_believed() -> None:
    """There is no speed yet."""
    assert RemainingTime(planned_s=100, done_s=0, step_s=10, took_s=0).left_s(4) == 96
