"""What a batch costs: seconds ≈ fixed + each × padded tokens, fitted to the batches as they run. Pure.

Weighted least squares that forgets. Errors count relative to how long a batch took, so that one that was held up says
next to nothing. As long as all batches have been of about one size, which says nothing of the fixed
part, that part is taken to be zero.
"""

from __future__ import annotations

import math
from typing import NamedTuple

FORGET = 0.02
"""Share of what is known that one more batch replaces."""

NO_FIXED_PART = 0.05
"""The belief that there is none, as a number of batches."""

LEAST_S = 1e-6
"""No batch takes less."""


class Costs(NamedTuple):
    """What a batch takes: `fixed_s`, and `token_s` for each of its tokens, padding included."""

    fixed_s: float
    token_s: float

    def seconds(self, padded_tokens: float) -> float:
        """Returns how long a batch of so many tokens takes."""
        return self.fixed_s + self.token_s * padded_tokens

    @property
    def overhead_tokens(self) -> float:
        """The fixed part, as the number of tokens that would take as long."""
        return self.fixed_s / self.token_s if self.token_s > 0 else math.inf


class CostFit:
    """The costs of batches as far as they have run. `costs` is None before the first.

    Kept are sums over batches, each weighted by w = 1 / seconds²: their number, w, w·t, w·t², w·s and w·t·s.
    """

    def __init__(self) -> None:
        self.costs: Costs | None = None
        self._number = self._w = self._wt = self._wtt = self._ws = self._wts = 0.0

    def observe(self, padded_tokens: int, seconds: float) -> None:
        """Takes in a batch: its tokens with padding, and how long it took."""
        if padded_tokens < 1:
            return
        seconds = max(seconds, LEAST_S)
        keep, w = 1 - FORGET, 1 / seconds**2
        self._number = keep * self._number + 1
        self._w = keep * self._w + w
        self._wt = keep * self._wt + w * padded_tokens
        self._wtt = keep * self._wtt + w * padded_tokens**2
        self._ws = keep * self._ws + w * seconds
        self._wts = keep * self._wts + w * padded_tokens * seconds
        self.costs = self._solved()

    def _solved(self) -> Costs:
        w = self._w * (1 + NO_FIXED_PART / self._number)  # as if some batches without any tokens had taken no time
        spread = w * self._wtt - self._wt**2
        fixed_s = (self._wtt * self._ws - self._wt * self._wts) / spread
        token_s = (w * self._wts - self._wt * self._ws) / spread
        if fixed_s < 0:
            return Costs(0.0, self._wts / self._wtt)
        if token_s < 0:
            return Costs(self._ws / self._w, 0.0)
        return Costs(fixed_s, token_s)
