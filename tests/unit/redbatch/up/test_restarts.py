"""When a child that died starts again."""

from __future__ import annotations

from redbatch.up.restarts import LONGEST_DELAY_S, QUICK_S, GiveUp, Restart, after_death


def test_the_first_death_is_followed_at_once() -> None:
    """One quick death is bad luck."""
    assert after_death(-9, 0.1, 0, ever_ready=False) == Restart(delay_s=0, quick_deaths=1)


def test_quick_deaths_wait_longer_and_longer_up_to_a_bound() -> None:
    """What keeps dying is started ever more rarely, at least every five seconds."""
    delays: list[float] = []
    deaths = 0
    for _ in range(9):
        decision = after_death(1, 0.1, deaths, ever_ready=True)
        assert isinstance(decision, Restart)
        deaths = decision.quick_deaths
        delays.append(decision.delay_s)
    assert delays == [0, 0.25, 0.5, 1, 2, 4, 5, 5, 5]
    assert max(delays) == LONGEST_DELAY_S


def test_a_long_life_forgives() -> None:
    """A child that ran well for a while starts at once, whatever was before."""
    assert after_death(1, QUICK_S, 7, ever_ready=True) == Restart(delay_s=0, quick_deaths=0)


def test_a_wrong_setting_ends_a_cluster_that_never_served() -> None:
    """Exit code 2 says that starting again does not help."""
    assert after_death(2, 1.0, 0, ever_ready=False) == GiveUp()


def test_a_cluster_that_served_goes_on() -> None:
    """Later, the others still serve, and what is wrong may be mended: it tries on."""
    assert after_death(2, 1.0, 0, ever_ready=True) == Restart(delay_s=0, quick_deaths=1)
