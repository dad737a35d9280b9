"""How the lanes take turns: interactive inputs go first, bulk fills what room they leave, and gets its share. Pure."""

from __future__ import annotations

import math

LATELY_S = 3.0
"""Time constant of the average of what interactive inputs take."""

LEAST_SHARE = 0.01
"""Bulk without a share still goes when it was passed over for long."""


class Turns:
    """What bulk is owed.

    For each interactive token that goes while bulk waits, bulk is owed a part of one: such a part that it has `share`
    of all tokens if it goes first whenever it is owed any. What it had in the room that was left is taken off, but is
    not saved up for later. And whatever it had there, it goes first once it was passed over for `age_bound_s`: what
    does not fit into the room that others leave has its turn then.

    Args:
        share: bulk's share of the tokens, below 1.
        age_bound_s: how long it is passed over at most.
    """

    def __init__(self, share: float, age_bound_s: float) -> None:
        self._ratio = share / (1 - share)
        self._age_bound_s = age_bound_s
        self._owed = 0.0
        self._passed_over_since: float | None = None

    def owed(self, now: float) -> int:
        """Returns how many tokens of bulk go before the interactive ones; 0 while it is not its turn."""
        since = self._passed_over_since
        overdue = since is not None and now - since >= self._age_bound_s
        return max(math.ceil(self._owed), int(overdue))

    def took(self, interactive: int, bulk: int, *, led: bool, waits: bool, now: float) -> None:
        """Takes in how many tokens went, of each lane, whether bulk led, and whether more of it waits."""
        least = min(self._owed, -bulk)
        self._owed = max(least, self._owed + self._ratio * interactive - bulk)
        if not waits:
            self._owed = min(0.0, self._owed)
            self._passed_over_since = None
        elif led or self._passed_over_since is None:
            self._passed_over_since = now


class Demand:
    """What interactive inputs take of the engine lately, in tokens a second, and so what they leave for bulk."""

    def __init__(self) -> None:
        self._tokens = 0
        self._rate = 0.0
        self._at: float | None = None

    def ran(self, tokens: int) -> None:
        """Takes in that so many tokens of interactive inputs have been run."""
        self._tokens += tokens

    def passed(self, now: float) -> None:
        """Takes in that so much time has passed (s): what has been run since the last call was run in it."""
        past = 0.0 if self._at is None else now - self._at
        self._at, tokens, self._tokens = now, self._tokens, 0
        if past > 0:
            self._rate += (1 - math.exp(-past / LATELY_S)) * (tokens / past - self._rate)

    def left(self, rate: float, share: float) -> float:
        """Returns how many tokens a second are left for bulk, whose share it has in any case; 0 while that is unknown.

        Args:
            rate: what the engine can do, in tokens a second; 0 while unknown.
            share: bulk's own.
        """
        return max(rate - self._rate, max(share, LEAST_SHARE) * rate)
