"""What happens to an entry that is held: renewed or let go; and to one whose run began and did not end. Pure."""

from __future__ import annotations

from enum import Enum


class Retry(Enum):
    """What to do with an entry that comes, or comes back, to a worker."""

    TOGETHER = "together"
    ALONE = "alone"
    GIVE_UP = "give up"


def retry(attempts: int, max_attempts: int) -> Retry:
    """Returns how to run an entry whose run has begun `attempts` times without ending.

    An engine that dies takes a whole batch with it, and only one of its inputs may be to blame: so each of them runs
    alone from then on, and the one to blame is alone when it kills again.
    """
    if attempts >= max_attempts:
        return Retry.GIVE_UP
    return Retry.ALONE if attempts > 0 else Retry.TOGETHER


def keeps(*, owned: bool, begun: bool, answered: bool) -> bool:
    """Returns whether a worker keeps an entry of which its renewal has found whether it is still its own.

    What was cancelled or taken over need not run. But what runs, runs to its end, and what has its answer is committed:
    whoever is first counts.
    """
    return owned or begun or answered
