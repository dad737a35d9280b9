"""What a batch costs: seconds ≈ fixed + each × padded tokens, fitted to the batches as they run. Pure.

Weighted least squares that forgets. Errors count relative to the time of a batch, so that a batch that was held up has
hardly any weight. While all batches have been of about one size, they do not reveal the fixed part: it is assumed to
be zero.
"""

from __future__ import annotations

import math
from typing import NamedTuple

FORGET = 0.02
"""Fraction of the estimate that one more batch replaces."""

NO_FIXED_PART = 0.05
"""Weight of the assumption that there is no fixed part, as a number of batches."""

MIN_S = 1e-6
"""Shorter times of a batch count as this."""


class Costs(NamedTuple):
    """The time of a batch: `fixed_s`, and `token_s` for each of its tokens, padding included.

    Batches of more than `max_tokens` have not run of late: their time is extrapolated.
    """

    fixed_s: float
    token_s: float
    max_tokens: float = math.inf

    def seconds(self, padded_tokens: float) -> float:
        """Returns how long a batch of this many tokens takes."""
        return self.fixed_s + self.token_s * padded_tokens

    def least_seconds(self, padded_tokens: float) -> float:
        """Returns how long a batch of this many tokens takes at least, as far as that is known.

        Beyond `max_tokens` it is not more than there: small batches alone do not reveal the fixed part, and a larger
        one may be hardly slower. Who refuses a batch by its time would never learn that.
        """
        return self.seconds(min(padded_tokens, self.max_tokens))

    @property
    def overhead_tokens(self) -> float:
        """The fixed part, as the number of tokens that would take as long."""
        return self.fixed_s / self.token_s if self.token_s > 0 else math.inf


class CostFit:
    """The costs of the batches so far. `costs` is None before the first.

    The state is sums over batches, each weighted by w = 1 / seconds²: their number, w, w·t, w·t², w·s and w·t·s.
    """

    def __init__(self) -> None:
        self.costs: Costs | None = None
        self._number = self._w = self._wt = self._wtt = self._ws = self._wts = self._max_tokens = 0.0

    def observe(self, padded_tokens: int, seconds: float) -> None:
        """Adds a batch: its tokens, padding included, and how long it took. Without tokens it is ignored."""
        if padded_tokens < 1:
            return
        seconds = max(seconds, MIN_S)
        keep, w = 1 - FORGET, 1 / seconds**2
        self._max_tokens = max(padded_tokens, keep * self._max_tokens)
        self._number = keep * self._number + 1
        self._w = keep * self._w + w
        self._wt = keep * self._wt + w * padded_tokens
        self._wtt = keep * self._wtt + w * padded_tokens**2
        self._ws = keep * self._ws + w * seconds
        self._wts = keep * self._wts + w * padded_tokens * seconds
        self.costs = self._solve()

    def _solve(self) -> Costs:
        w = self._w * (1 + NO_FIXED_PART / self._number)  # as if some batches without tokens had taken no time
        spread = w * self._wtt - self._wt**2
        fixed_s = (self._wtt * self._ws - self._wt * self._wts) / spread
        token_s = (w * self._wts - self._wt * self._ws) / spread
        if fixed_s < 0:
            return Costs(0.0, self._wts / self._wtt, self._max_tokens)
        if token_s < 0:
            return Costs(self._ws / self._w, 0.0, self._max_tokens)
        return Costs(fixed_s, token_s, self._max_tokens)
