"""Whether an idle engine gains by waiting for more. Pure.

Running two groups of inputs as one batch instead of two saves the fixed part of a batch, and costs the padding that the
longer of them asks of the others. Where nothing is known of who comes next, waiting for it buys nothing: inputs that
come while a batch runs are in the next one anyway, and a device that is not busy has no use for saved time. But
clients that ask again when they are answered split into two groups that take turns on the device, and never meet:
while one runs, the other's answers come back as new inputs. To wait for those joins the groups for good.

So a wait is worth the time saved, for the share of the answered that will have come back; against the wait itself, and,
for the share that will not, against a whole batch that these then have to sit out.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from gpuworker.costs import CostFit, Costs
from gpuworker.returns import EDGES_S, Returns

LENGTHS = 8
"""So many batches stand for what inputs take."""


@dataclass(frozen=True, slots=True)
class Forming:
    """What a batch would be made of now.

    Attributes:
        number: of inputs.
        each: what each of them takes, in tokens: the length of the longest or, `packed`, the mean of all.
        since: when the oldest of them came.
    """

    number: int
    each: float
    since: float
    packed: bool = False


@dataclass(frozen=True, slots=True)
class Outlook:
    """What there is to wait for.

    Attributes:
        costs: of a batch.
        ended: when the last one ended.
        answered: how many inputs it answered; `out` of them have not come back.
        each: what each input took, in tokens, in the last batches.
        risks: of coming back, up to each of returns.EDGES_S, added up.
    """

    costs: Costs
    ended: float
    answered: int
    out: int
    each: tuple[float, ...]
    risks: tuple[float, ...]

    def joined(self, forming: Forming) -> tuple[int, float]:
        """Returns the inputs of the batch if all that are out come back, and what each of them takes, in tokens."""
        number, usual = forming.number + self.out, sum(self.each) / len(self.each)
        if forming.packed:
            return number, (forming.number * forming.each + self.out * usual) / number
        return number, max(forming.each, usual)

    def batch_s(self, forming: Forming) -> float:
        """Returns how long that batch would run."""
        number, each = self.joined(forming)
        return self.costs.seconds(number * each)

    def saved_s(self, forming: Forming) -> float:
        """Returns the time of the device that is saved if all that are out come back and run in the same batch."""
        if forming.packed:
            return self.costs.fixed_s
        number, out = forming.number, self.out
        padding = sum(
            (number + out) * max(forming.each, each) - number * forming.each - out * each for each in self.each
        )
        # With fewer of them out, their longest is likely one that has come back already.
        waste = padding / len(self.each) * out / self.answered
        return self.costs.fixed_s - self.costs.token_s * waste

    def until(self, forming: Forming, now: float) -> float:
        """Returns until when to wait at most; `now` when the batch should go."""
        saved_s = self.saved_s(forming) if self.out > 0 else 0.0
        most = max(forming.since, self.ended) + saved_s
        if most <= now:
            return now
        batch_s = self.batch_s(forming)
        before = self._risk(now)
        best, best_at = 0.0, now
        for edge_s in EDGES_S[bisect_right(EDGES_S, now - self.ended) :]:
            at = min(self.ended + edge_s, most)
            away = math.exp(before - self._risk(at))
            worth = (1 - away) * saved_s - away * batch_s - (at - now)
            if worth > best:
                best, best_at = worth, at
            if at == most:
                break
        return best_at

    def _risk(self, at: float) -> float:
        """The risk from the end of the batch until then, added up."""
        since_s = max(0.0, at - self.ended)
        k = min(bisect_right(EDGES_S, since_s), len(EDGES_S) - 1)
        share = min(1.0, (since_s - EDGES_S[k - 1]) / (EDGES_S[k] - EDGES_S[k - 1]))
        return self.risks[k - 1] + share * (self.risks[k] - self.risks[k - 1])


class Pace:
    """Learns, as an engine runs, what there is to wait for: `outlook`, None before the first batch."""

    def __init__(self) -> None:
        self.outlook: Outlook | None = None
        self._fit = CostFit()
        self._returns = Returns()
        self._each: tuple[float, ...] = ()

    def arrived(self, now: float, inputs: int) -> None:
        """Takes in that inputs have come, ready to run."""
        self._returns.arrived(now, inputs)
        self._look()

    def ran(self, now: float, seconds: float, size: int, padded_tokens: int, answered: int) -> None:
        """Takes in a batch that has ended now.

        Args:
            now: when it ended.
            seconds: how long it took.
            size: how many texts were in it.
            padded_tokens: their tokens, with what padding there was.
            answered: the inputs of all entries that it has completed.
        """
        self._fit.observe(padded_tokens, seconds)
        self._each = (*self._each[1 - LENGTHS :], padded_tokens / size)
        self._returns.finished(now, answered)
        self._look()

    def _look(self) -> None:
        returns, costs = self._returns, self._fit.costs
        if returns.ended is None or costs is None:
            return
        self.outlook = Outlook(costs, returns.ended, returns.answered, returns.out, self._each, returns.risks)
