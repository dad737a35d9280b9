"""The limits of the next batch: those that are set, and what is learned as batches run. Pure.

The costs of batches are learned. If batches are padded, the plan weighs padding against the fixed part of a batch,
which is worth a few tokens on one device and thousands on another. An adaptive wait needs the costs too, and learns
which inputs it may expect; the watchdog needs them to tell a slow batch from one that hangs. Any wait learns how long a
batch takes, to leave that time before a deadline; the plan learns it to find inputs that would be answered late.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuworker.policy.batch_wait import WaitForecast
from gpuworker.policy.closed_loop import ReturnEstimator
from gpuworker.policy.costs import CostFit
from gpuworker.policy.limits import Limits, is_full

WEIGHT = 0.2
"""Weight of the last batch in the averages: the expected time of a batch, and the tokens of each of its inputs."""

MIN_PARTS = 2
"""The batch of a single runner leaves as much waiting as it takes."""

SMALL_BATCH = 8
"""A batch of this many times its fixed cost is not split: the fixed cost is then a ninth of its time."""


class AdaptiveLimits:
    """What an engine has learned of its batches.

    With several runners the last batch is that of any of them. A runner that is free may wait while others run: it
    waits for the clients that were answered last, as a single runner would.

    Args:
        limits: as set; without a `wait_s` the wait is adaptive.
        runners: how many batches run at once.
    """

    def __init__(self, limits: Limits, runners: int) -> None:
        self._limits = limits
        self._max_tokens_set = limits.max_tokens
        self._runners = runners
        self._min_overhead = limits.overhead_tokens
        self._may_wait = limits.wait_s != 0
        self._adaptive_wait = limits.wait_s is None
        self._fit = CostFit()
        self._returns = ReturnEstimator()
        self._input_tokens = 0.0
        self._max_input_tokens = 0.0

    def limits(self, waiting_tokens: int, running_tokens: int) -> Limits:
        """Returns the limits of a batch that is planned now, with this many tokens waiting and running."""
        limits, costs = self._limits, self._fit.costs
        if limits.wait_s:
            return limits._replace(costs=costs)  # a set wait is for full batches: they are not split
        max_tokens = max_runner_tokens(waiting_tokens + running_tokens, self._runners, limits)
        forecast = self._forecast() if self._adaptive_wait else None
        return limits._replace(max_tokens=max_tokens, costs=costs, forecast=forecast)

    @property
    def max_tokens(self) -> int:
        """Maximum tokens in a batch, padding included: as set, or less after one ran out of memory."""
        return self._limits.max_tokens

    def is_full(self, lengths: Sequence[int]) -> bool:
        """Returns whether a batch of inputs of these lengths is as large as any may be."""
        return is_full(lengths, self._limits)

    def is_large(self, padded_tokens: int) -> bool:
        """Returns whether a batch of these tokens is so large that another one would have a hardly higher rate.

        The rate of smaller ones is that of their fixed costs, and says nothing of what the engine could do.
        """
        limits = self._limits
        return padded_tokens >= min(SMALL_BATCH * limits.overhead_tokens, limits.max_tokens / MIN_PARTS)

    def record_out_of_memory(self, padded_tokens: int) -> None:
        """Lowers the limit to half of `padded_tokens`, for which there was no memory."""
        self._limits = self._limits._replace(max_tokens=max(1, min(self._limits.max_tokens, padded_tokens // 2)))

    def forget_out_of_memory(self) -> None:
        """Raises the limit to what is set: a single input was the cause."""
        self._limits = self._limits._replace(max_tokens=self._max_tokens_set)

    @property
    def full_s(self) -> float:
        """Expected time of a full batch of the longest inputs so far; 0 before the first batch of any size."""
        if self._fit.costs is None:
            return 0.0
        return self._fit.costs.seconds(
            min(self._limits.max_tokens, round(self._limits.max_size * self._max_input_tokens))
        )

    def record_arrivals(self, now: float, inputs: int) -> None:
        """Counts inputs that have arrived, ready to run."""
        if self._adaptive_wait:
            self._returns.record_arrivals(now, inputs, self._fit.costs.fixed_s if self._fit.costs else 0.0)

    def record_batch(self, now: float, seconds: float, size: int, padded_tokens: int, answered: int) -> None:
        """Learns from a batch that has ended.

        Args:
            now: when it ended.
            seconds: how long it took.
            size: how many texts were in it.
            padded_tokens: their tokens, with padding, if there was any.
            answered: the inputs of all entries that it has completed.
        """
        self._fit.observe(padded_tokens, seconds)
        self._max_input_tokens = max(self._max_input_tokens, padded_tokens / size)
        if not self._limits.packed and self._fit.costs is not None:
            overhead = max(self._min_overhead, self._fit.costs.overhead_tokens)
            self._limits = self._limits._replace(overhead_tokens=min(overhead, self._limits.max_tokens))
        if self._may_wait:
            reserve_s = WEIGHT * seconds + (1 - WEIGHT) * self._limits.reserve_s
            self._limits = self._limits._replace(reserve_s=reserve_s)
        if self._adaptive_wait:
            self._input_tokens += WEIGHT * (padded_tokens / size - self._input_tokens)
            self._returns.record_batch(now, answered)

    def _forecast(self) -> WaitForecast | None:
        """Returns which inputs to expect; None before the first batch, and when no answered input is outstanding."""
        costs, returns = self._fit.costs, self._returns
        if costs is None or returns.ended_at is None or returns.outstanding == 0:
            return None
        return WaitForecast(
            costs, returns.ended_at, returns.outstanding, self._input_tokens, returns.share, returns.delay_s
        )


def max_runner_tokens(total_tokens: int, runners: int, limits: Limits) -> int:
    """Returns the token limit of a batch that leaves inputs for the other runners, or for the next batch.

    If one batch took everything, the next free runner would find nothing, and would start with the first few inputs
    that come back. `total_tokens` counts what waits and what runs. A small batch is not made smaller: its fixed cost
    would weigh too much.
    """
    parts = max(MIN_PARTS, runners)
    return min(limits.max_tokens, max(total_tokens // parts, round(SMALL_BATCH * limits.overhead_tokens)))
