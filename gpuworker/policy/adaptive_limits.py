"""The limits of the next batch: those that are set, and what is learnt as batches run. Pure.

What batches cost is learnt: where they are padded, the plan weighs padding against the fixed part of a batch, which is
worth a few tokens on one device and thousands on another. An adaptive wait needs it too, and learns what there is to
wait for; and so does whoever has to tell a slow batch from one that hangs. Any wait learns how long a batch takes, to
leave that before a deadline; and the plan, to tell what would come too late.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuworker.policy.batching import Limits, is_full, share
from gpuworker.policy.costs import CostFit
from gpuworker.policy.closed_loop import Returns
from gpuworker.policy.batch_wait import Outlook

WEIGHT = 0.2
"""Of the last batch, in how long one is expected to take, and in what each of its inputs is."""


class Pace:
    """What an engine has learnt of its batches.

    With several runners the last batch is that of any of them, and one that is free may wait while others run: it waits
    for those who were answered last, as it would alone.

    Args:
        limits: as set; without a `wait_s` the wait is adaptive.
        runners: how many batches run at once.
    """

    def __init__(self, limits: Limits, runners: int) -> None:
        self._limits = limits
        self._runners = runners
        self._least_overhead = limits.overhead_tokens
        self._waits = limits.wait_s != 0
        self._adapts = limits.wait_s is None
        self._fit = CostFit()
        self._returns = Returns()
        self._each = 0.0
        self._longest = 0.0

    def limits(self, waiting_tokens: int, running_tokens: int) -> Limits:
        """Returns the limits of a batch that is planned now, with so much that waits and runs."""
        limits, costs = self._limits, self._fit.costs
        if limits.wait_s:
            return limits._replace(costs=costs)  # who waits for full batches wants them full
        max_tokens = share(waiting_tokens + running_tokens, self._runners, limits)
        return limits._replace(max_tokens=max_tokens, costs=costs, outlook=self._outlook() if self._adapts else None)

    @property
    def max_tokens(self) -> int:
        """Most tokens in a batch, padding included: as set, or less after one ran out of memory."""
        return self._limits.max_tokens

    def is_full(self, lengths: Sequence[int]) -> bool:
        """Says whether a batch of inputs of these lengths is as large as any may be."""
        return is_full(lengths, self._limits)

    def ran_out(self, padded_tokens: int) -> None:
        """Takes in that there was no memory for a batch of so many tokens: from now on, half of that is the most."""
        self._limits = self._limits._replace(max_tokens=max(1, min(self._limits.max_tokens, padded_tokens // 2)))

    @property
    def full_s(self) -> float:
        """How long a full batch is expected to take, of the longest inputs so far; 0 before the first of any size."""
        if self._fit.costs is None:
            return 0.0
        return self._fit.costs.seconds(min(self._limits.max_tokens, round(self._limits.max_size * self._longest)))

    def arrived(self, now: float, inputs: int) -> None:
        """Takes in that inputs have come, ready to run."""
        if self._adapts:
            self._returns.arrived(now, inputs, self._fit.costs.fixed_s if self._fit.costs else 0.0)

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
        self._longest = max(self._longest, padded_tokens / size)
        if not self._limits.packed and self._fit.costs is not None:
            learnt = max(self._least_overhead, self._fit.costs.overhead_tokens)
            self._limits = self._limits._replace(overhead_tokens=min(learnt, self._limits.max_tokens))
        if self._waits:
            reserve_s = WEIGHT * seconds + (1 - WEIGHT) * self._limits.reserve_s
            self._limits = self._limits._replace(reserve_s=reserve_s)
        if self._adapts:
            self._each += WEIGHT * (padded_tokens / size - self._each)
            self._returns.finished(now, answered)

    def _outlook(self) -> Outlook | None:
        """Returns what there is to wait for; None before the first batch, and when nobody is out."""
        costs, returns = self._fit.costs, self._returns
        if costs is None or returns.ended is None or returns.out == 0:
            return None
        return Outlook(costs, returns.ended, returns.out, self._each, returns.share, returns.delay_s)
