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

from typing import NamedTuple

from gpuworker.policy.costs import Costs

MARGIN = 1.25
"""A wait ends a little after those waited for are due: without them it was in vain."""


class Forming(NamedTuple):
    """What a batch would be made of now: so many inputs, each of which takes `each` tokens.

    That is the length of the longest or, where batches are `packed`, the mean of all.
    """

    number: int
    each: float
    packed: bool = False


class Outlook(NamedTuple):
    """What there is to wait for.

    Attributes:
        costs: of a batch.
        ended: when the last one ended.
        out: how many inputs that it answered have not come back.
        each: what each of them took, in tokens.
        share: of those answered, how many come back soon enough.
        delay_s: how long after the end of the batch they have come.
    """

    costs: Costs
    ended: float
    out: int
    each: float
    share: float
    delay_s: float

    def joined(self, forming: Forming) -> Forming:
        """Returns what the batch is made of if all that are out come back."""
        number = forming.number + self.out
        if forming.packed:
            return Forming(number, (forming.number * forming.each + self.out * self.each) / number, packed=True)
        return Forming(number, max(forming.each, self.each))

    def batch_s(self, forming: Forming) -> float:
        """Returns how long that batch would run."""
        joined = self.joined(forming)
        return self.costs.seconds(joined.number * joined.each)

    def saved_s(self, forming: Forming) -> float:
        """Returns by how much that is less than two batches take, of those here and of those that are out."""
        here_s, out_s = (
            self.costs.seconds(n * each) for n, each in ((forming.number, forming.each), (self.out, self.each))
        )
        return here_s + out_s - self.batch_s(forming)

    def until(self, forming: Forming, now: float) -> float:
        """Returns until when to wait at most; `now` when the batch should go."""
        until = self.ended + MARGIN * self.delay_s
        if self.out == 0 or until <= now:
            return now
        worth_s = self.share * self.saved_s(forming) - (1 - self.share) * self.batch_s(forming) - (until - now)
        return until if worth_s > 0 else now
