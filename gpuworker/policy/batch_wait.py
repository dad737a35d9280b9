"""Whether an idle engine gains by waiting for more inputs. Pure.

Running two groups of inputs as one batch instead of two saves the fixed part of a batch. It costs the padding that the
longer inputs cause for the others. If nothing is known of what arrives next, waiting for it gains nothing: inputs that
arrive while a batch runs are in the next one anyway, and a device that is not busy has no use for saved time. But
clients that send the next request when they are answered split into two groups that take turns on the device, and never
meet: while one group runs, the answers of the other come back as new inputs. To wait for those joins the groups for
good.

So a wait is worth the time saved, for the share of the answered inputs that will have come back. Against it count the
wait itself, and, for the share that will not, a whole batch that these then have to sit out.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuworker.policy.costs import Costs

MARGIN = 1.25
"""A wait ends a little after the expected inputs are due: without them it was in vain."""


class PendingBatch(NamedTuple):
    """What a batch would contain now: `num_inputs` inputs, each of `input_tokens` tokens.

    That is the length of the longest or, if batches are `packed`, the mean of all.
    """

    num_inputs: int
    input_tokens: float
    packed: bool = False


class WaitForecast(NamedTuple):
    """Which inputs are expected, and when.

    Attributes:
        costs: of a batch.
        ended_at: when the last batch ended.
        outstanding: how many inputs that it answered have not come back.
        input_tokens: tokens of each of them.
        share: fraction of the answered inputs that come back soon enough.
        delay_s: how long after the end of the batch they have come.
    """

    costs: Costs
    ended_at: float
    outstanding: int
    input_tokens: float
    share: float
    delay_s: float

    def join(self, pending: PendingBatch) -> PendingBatch:
        """Returns what the batch contains if all outstanding inputs come back."""
        num_inputs = pending.num_inputs + self.outstanding
        if pending.packed:
            tokens = pending.num_inputs * pending.input_tokens + self.outstanding * self.input_tokens
            return PendingBatch(num_inputs, tokens / num_inputs, packed=True)
        return PendingBatch(num_inputs, max(pending.input_tokens, self.input_tokens))

    def batch_s(self, pending: PendingBatch) -> float:
        """Returns how long the joined batch would run."""
        joined = self.join(pending)
        return self.costs.seconds(joined.num_inputs * joined.input_tokens)

    def saved_s(self, pending: PendingBatch) -> float:
        """Returns how much less the joined batch takes than two: one of the pending inputs, one of the outstanding."""
        pending_s, outstanding_s = (
            self.costs.seconds(n * tokens)
            for n, tokens in ((pending.num_inputs, pending.input_tokens), (self.outstanding, self.input_tokens))
        )
        return pending_s + outstanding_s - self.batch_s(pending)

    def wake_at(self, pending: PendingBatch, now: float) -> float:
        """Returns until when to wait at most; `now` if the batch should go."""
        wake_at = self.ended_at + MARGIN * self.delay_s
        if self.outstanding == 0 or wake_at <= now:
            return now
        worth_s = self.share * self.saved_s(pending) - (1 - self.share) * self.batch_s(pending) - (wake_at - now)
        return wake_at if worth_s > 0 else now
