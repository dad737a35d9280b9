"""What a batch costs: seconds ≈ fixed + each × padded tokens, fitted to the batches as they run. Pure.

Weighted least squares that forgets. Errors count relative to how long a batch took, so that a late one does not
outweigh many that were in time. What is known of one size is forgotten as that size is seen again, and only slowly
otherwise: an engine that runs batches of one size for a while still knows what it knew of the others. And as long as
all batches have been of about one size, which says nothing of the fixed part, that part is taken to be zero.
"""

from __future__ import annotations

from dataclasses import dataclass

FORGET = 0.1
"""Share of what is known of a size that one more batch of this size replaces."""

FADE = 0.002
"""And of what is known of all other sizes."""

NO_FIXED_PART = 0.05
"""The belief that there is none, as a number of batches."""

LATE_FACTOR = 3.0
"""A batch that took longer than so many times what was expected was held up by something else, and counts as that."""


LEAST_S = 1e-6
"""No batch takes less."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a batch takes: `fixed_s`, and `token_s` for each of its tokens, padding included."""

    fixed_s: float
    token_s: float

    def seconds(self, padded_tokens: float) -> float:
        """Returns how long a batch of so many tokens takes."""
        return self.fixed_s + self.token_s * padded_tokens


@dataclass(slots=True)
class _Sums:
    """Sums over batches of one size, each weighted by 1 / seconds²: w, w·t, w·t², w·s, w·t·s; and their number."""

    number: float = 0.0
    w: float = 0.0
    wt: float = 0.0
    wtt: float = 0.0
    ws: float = 0.0
    wts: float = 0.0

    def keep(self, share: float) -> None:
        self.number *= share
        self.w *= share
        self.wt *= share
        self.wtt *= share
        self.ws *= share
        self.wts *= share

    def add(self, tokens: float, seconds: float) -> None:
        w = 1 / seconds**2
        self.number += 1
        self.w += w
        self.wt += w * tokens
        self.wtt += w * tokens * tokens
        self.ws += w * seconds
        self.wts += w * tokens * seconds


class CostFit:
    """The costs of batches as far as they have run. `costs` is None before the first."""

    def __init__(self) -> None:
        self._sizes: dict[int, _Sums] = {}
        self.costs: Costs | None = None

    def observe(self, padded_tokens: int, seconds: float) -> None:
        """Takes in a batch: its tokens with padding, and how long it took."""
        if padded_tokens < 1:
            return
        seconds = max(seconds, LEAST_S)
        if self.costs is not None:
            seconds = min(seconds, LATE_FACTOR * self.costs.seconds(padded_tokens))
        size = padded_tokens.bit_length()
        for other, sums in self._sizes.items():
            sums.keep(1 - (FORGET if other == size else FADE))
        self._sizes.setdefault(size, _Sums()).add(padded_tokens, seconds)
        self.costs = self._solve()

    def _solve(self) -> Costs:
        every = self._sizes.values()
        number, w, wt = (
            sum(each.number for each in every),
            sum(each.w for each in every),
            sum(each.wt for each in every),
        )
        wtt, ws, wts = sum(each.wtt for each in every), sum(each.ws for each in every), sum(each.wts for each in every)
        believed = w * (1 + NO_FIXED_PART / number)  # as if some batches without any tokens had taken no time
        spread = believed * wtt - wt * wt
        fixed_s = (wtt * ws - wt * wts) / spread
        token_s = (believed * wts - wt * ws) / spread
        if fixed_s < 0:
            return Costs(0.0, wts / wtt)
        if token_s < 0:
            return Costs(ws / w, 0.0)
        return Costs(fixed_s, token_s)
