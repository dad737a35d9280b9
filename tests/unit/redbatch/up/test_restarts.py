"""Decisions after the death of a child."""

from __future__ import annotations

from redbatch.up.restarts import MAX_DELAY_S, QUICK_DEATH_S, GiveUp, Restart, decide_restart


def test_the_first_death_is_followed_at_once() -> None:
    """A child that died early for the first time is restarted without delay."""
    assert decide_restart(-9, 0.1, 0, was_ready=False) == Restart(delay_s=0, quick_deaths=1)


def test_the_delay_doubles_up_to_a_maximum() -> None:
    """After repeated early deaths the delay doubles from 0.25 s up to 5 s."""
    delays: list[float] = []
    deaths = 0
    for _ in range(9):
        decision = decide_restart(1, 0.1, deaths, was_ready=True)
        assert isinstance(decision, Restart)
        deaths = decision.quick_deaths
        delays.append(decision.delay_s)
    assert delays == [0, 0.25, 0.5, 1, 2, 4, 5, 5, 5]
    assert max(delays) == MAX_DELAY_S


def test_a_long_life_resets_the_delay() -> None:
    """A child that lived for QUICK_DEATH_S is restarted without delay, whatever happened before."""
    assert decide_restart(1, QUICK_DEATH_S, 7, was_ready=True) == Restart(delay_s=0, quick_deaths=0)


def test_a_wrong_setting_ends_a_cluster_that_never_served() -> None:
    """Exit code 2 (a restart does not help) ends a cluster that was never ready."""
    assert decide_restart(2, 1.0, 0, was_ready=False) == GiveUp()


def test_a_cluster_that_was_ready_retries() -> None:
    """After exit code 2, a cluster that was ready restarts the child: the others serve, and the fault may be fixed."""
    assert decide_restart(2, 1.0, 0, was_ready=True) == Restart(delay_s=0, quick_deaths=1)
