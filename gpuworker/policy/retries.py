"""Whether a held entry is kept or dropped, and how an entry runs again whose run began and did not end. Pure."""

from __future__ import annotations

from enum import Enum


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


def should_keep(*, owned: bool, started: bool, answered: bool) -> bool:
    """Returns whether a worker keeps an entry, after a renewal has found whether it still owns it.

    An entry that was cancelled or taken over need not run. But one that has started runs to its end, and one with an
    answer is committed: the first commit counts.
    """
    return owned or started or answered
