"""How the lanes take turns: interactive inputs go first; bulk fills the room that is left, and gets its share. Pure."""

from __future__ import annotations

import math


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
