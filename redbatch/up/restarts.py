"""Decides whether and when a child that died is started again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from shared.process.settings import EXIT_CONFIGURATION

QUICK_DEATH_S = 10.0
FIRST_DELAY_S = 0.25
MAX_DELAY_S = 5.0


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the child again after `delay_s`. Pass `quick_deaths` to the next call of `decide_restart`."""

    delay_s: float
    quick_deaths: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not start the child again: it would end in the same way."""


def decide_restart(exit_code: int, lived_s: float, quick_deaths: int, *, was_ready: bool) -> Restart | GiveUp:
    """Decides what follows the death of a child.

    A wrong setting or model stops a cluster that was never ready. A cluster that was ready keeps its other children
    and retries. A child that lived at least QUICK_DEATH_S, or died early for the first time, starts at once. After
    further early deaths, the delay starts at FIRST_DELAY_S and doubles, up to 5 s.
    """
    if exit_code == EXIT_CONFIGURATION and not was_ready:
        return GiveUp()
    if lived_s >= QUICK_DEATH_S:
        return Restart(delay_s=0, quick_deaths=0)
    delay_s = 0.0 if quick_deaths == 0 else min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** (quick_deaths - 1))
    return Restart(delay_s=delay_s, quick_deaths=quick_deaths + 1)
