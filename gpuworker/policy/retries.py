"""Whether a held entry is kept or dropped, and how an entry or an input runs again that has no result yet. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

MAX_BACKOFF_S = 30.0


class RetryDecision(Enum):
    """How to run an entry that a worker claims, or that comes back to it."""

    BATCHED = "batched"
    ISOLATED = "isolated"
    GIVE_UP = "give up"


def decide_retry(attempts: int, max_attempts: int) -> RetryDecision:
    """Returns how to run an entry whose run has begun `attempts` times without ending.

    An engine that dies takes a whole batch with it, and perhaps only one of its inputs is the cause. So each of them
    runs alone from then on, and the cause is alone when it kills an engine again.
    """
    if attempts >= max_attempts:
        return RetryDecision.GIVE_UP
    return RetryDecision.ISOLATED if attempts > 0 else RetryDecision.BATCHED


class RetryLimits(NamedTuple):
    """How often an input runs again after a passing exception, and the wait before the first of these runs, s."""

    max_retries: int = 0
    backoff_s: float = 0.0

    @property
    def longest_delay_s(self) -> float:
        """The longest wait before a retry."""
        return self.delay_s(self.max_retries - 1) if self.max_retries else 0.0

    def delay_s(self, num_retries: int) -> float:
        """Returns the wait after an input has run again `num_retries` times: it doubles each time."""
        return min(MAX_BACKOFF_S, self.backoff_s * 2.0**num_retries)


def retry_delay_s(num_retries: int, limits: RetryLimits, time_left_s: float) -> float | None:
    """Returns how long to wait before an input runs again; None if it is not to.

    Args:
        num_retries: how often it has run again already.
        limits: of retries.
        time_left_s: time to its deadline, s: an attempt that could not begin before it is useless.
    """
    if num_retries >= limits.max_retries:
        return None
    delay_s = limits.delay_s(num_retries)
    return delay_s if delay_s < time_left_s else None


def should_keep(*, owned: bool, started: bool, answered: bool) -> bool:
    """Returns whether a worker keeps an entry, after a renewal has found whether it still owns it.

    An entry that was cancelled or taken over need not run. But one that has started runs to its end, and one with an
    answer is committed: the first commit counts.
    """
    return owned or started or answered
