"""When a child that died starts again, and when that makes no sense. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from shared.process.settings import EXIT_CONFIGURATION

QUICK_S = 10.0
FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 5.0


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the child again after so many seconds. `quick_deaths` is what to hand in the next time."""

    delay_s: float
    quick_deaths: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Starting it again would end in the same way."""


def after_death(exit_code: int, lived_s: float, quick_deaths: int, *, ever_ready: bool) -> Restart | GiveUp:
    """Decides what follows the death of a child.

    A wrong setting or model stops a cluster that never served; one that did serve keeps what it has, and tries on.
    A child that lived long, or dies early for the first time, starts at once; then the delay doubles up to 5 s.
    """
    if exit_code == EXIT_CONFIGURATION and not ever_ready:
        return GiveUp()
    if lived_s >= QUICK_S:
        return Restart(delay_s=0, quick_deaths=0)
    delay_s = 0.0 if quick_deaths == 0 else min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** (quick_deaths - 1))
    return Restart(delay_s=delay_s, quick_deaths=quick_deaths + 1)
