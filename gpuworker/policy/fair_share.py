"""How the lanes take turns: interactive inputs go first; bulk fills the room that is left, and gets its share. Pure."""

from __future__ import annotations

import math

RECENT_S = 3.0
"""Time constant of the average load of interactive inputs."""

MIN_SHARE = 0.01
"""Minimum share in the rate of bulk: without a share it still runs after it was passed over for long."""


class DeficitCounter:
    """The tokens that bulk is owed (deficit round robin).

    For each interactive token that goes while bulk waits, bulk is owed a fraction of a token: the fraction that gives
    bulk `share` of all tokens if it goes first whenever it is owed any. Bulk tokens that filled the room of interactive
    batches are subtracted, but are not saved up for later. Whatever bulk got there, it goes first once it was passed
    over for `age_bound_s`: an input that does not fit into the room that others leave has its turn then.

    Args:
        share: bulk's share of the tokens, below 1.
        age_bound_s: longest time for which bulk is passed over.
    """

    def __init__(self, share: float, age_bound_s: float) -> None:
        self._ratio = share / (1 - share)
        self._age_bound_s = age_bound_s
        self._owed = 0.0
        self._passed_over_since: float | None = None

    def tokens_owed(self, now: float) -> int:
        """Returns how many tokens of bulk go before the interactive ones; 0 while it is not bulk's turn."""
        since = self._passed_over_since
        overdue = since is not None and now - since >= self._age_bound_s
        return max(math.ceil(self._owed), int(overdue))

    def record(self, interactive: int, bulk: int, *, bulk_first: bool, bulk_waits: bool, now: float) -> None:
        """Counts the tokens that went, by lane; notes whether bulk went first, and whether more of it waits."""
        min_owed = min(self._owed, -bulk)
        self._owed = max(min_owed, self._owed + self._ratio * interactive - bulk)
        if not bulk_waits:
            self._owed = min(0.0, self._owed)
            self._passed_over_since = None
        elif bulk_first or self._passed_over_since is None:
            self._passed_over_since = now


class LoadAverage:
    """The recent load of interactive inputs, in tokens per second, and the rate that it leaves for bulk."""

    def __init__(self) -> None:
        self._tokens = 0
        self._rate = 0.0
        self._last_at: float | None = None

    def record(self, tokens: int) -> None:
        """Counts tokens of interactive inputs that have been run."""
        self._tokens += tokens

    def advance(self, now: float) -> None:
        """Updates the average at `now`, s; the tokens recorded since the last call were run in the time since then."""
        elapsed = 0.0 if self._last_at is None else now - self._last_at
        self._last_at, tokens, self._tokens = now, self._tokens, 0
        if elapsed > 0:
            self._rate += (1 - math.exp(-elapsed / RECENT_S)) * (tokens / elapsed - self._rate)

    def bulk_rate(self, rate: float, share: float) -> float:
        """Returns how many tokens per second are left for bulk, at least its share; 0 while the rate is unknown.

        Args:
            rate: of the engine, in tokens per second; 0 while unknown.
            share: bulk's share of the tokens.
        """
        return max(rate - self._rate, max(share, MIN_SHARE) * rate)
