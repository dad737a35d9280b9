"""Whether to take a request at all, and when a refused one may come again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shared.errors import NoWorker, Overloaded, RateLimited, RedbatchError, RedisUnreachable
from shared.messages import MOST_TOKENS

RETRY_LEAST_S = 1.0
RETRY_MOST_S = 30.0
IN_TIME = 0.8
"""Share of a request's time that may pass in the queue by estimate: what is left is for what the estimate misses."""

JITTER = 0.5
"""Refused clients come back spread over this share of the wait, not all at once."""


LIMIT_JITTER, MOST_LIMIT_JITTER_S = 0.1, 5.0
"""The same for those whose tenant has used up its tokens: when there are more is known exactly."""


class Cluster(NamedTuple):
    """What a gateway knows of the rest.

    `redis_down_s` is how long Redis has not answered (0 while it does). `worker_unseen_s` is how long ago the last
    worker gave a sign of life: None if none ever did. `memory_ratio` is the share of its memory that Redis uses.
    """

    redis_down_s: float = 0.0
    worker_unseen_s: float | None = 0.0
    memory_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Grace:
    """How long, in seconds, requests are still taken without Redis, and without a worker.

    And up to which share of Redis' memory: what was taken still needs room for its replies.
    """

    redis_s: float
    worker_s: float
    memory_ratio: float = 0.7


def admit(cluster: Cluster, grace: Grace, budget_s: float, share: float) -> RedbatchError | None:
    """Returns why a request with so much time is refused, or None to take it.

    An outage of Redis that has lasted for some time is as likely as not to last as long again. So it is worth waiting
    for its end to a request that has more time than that, and to none after the grace. `share`, from 0 to 1, is the
    client's place in the jitter.
    """
    if cluster.redis_down_s > min(grace.redis_s, budget_s):
        return redis_away(cluster.redis_down_s, share)
    if cluster.worker_unseen_s is None:
        return NoWorker(
            "No worker serves this queue yet: start one, then try again.", retry_after_s=_later(RETRY_LEAST_S, share)
        )
    if cluster.worker_unseen_s > grace.worker_s:
        return NoWorker(
            f"No worker has lived for {cluster.worker_unseen_s:.0f} s: start one, then try again.",
            retry_after_s=_later(cluster.worker_unseen_s, share),
        )
    if cluster.memory_ratio > grace.memory_ratio:
        return Overloaded(
            f"Redis uses {cluster.memory_ratio:.0%} of its memory: try again soon, or give it more.",
            retry_after_s=_later(RETRY_LEAST_S, share),
        )
    return None


def redis_away(down_s: float, share: float) -> RedbatchError:
    """Returns the error for a request that Redis cannot take, which it has not answered for so long (s)."""
    return RedisUnreachable(
        f"Redis has not answered for {down_s:.1f} s: try again later.", retry_after_s=_later(down_s, share)
    )


def limited(wait_ms: int, share: float) -> RedbatchError:
    """Returns the error for a request whose tenant may have as much as it wants after so many ms."""
    wait_s = wait_ms / 1000 + min(wait_ms / 1000 * LIMIT_JITTER, MOST_LIMIT_JITTER_S) * share
    return RateLimited(
        f"This tenant has had what it may have for now: try again in {wait_s:.1f} s.", retry_after_s=wait_s
    )


def fleet_rate(rates: Sequence[float]) -> float:
    """Returns what the ready workers get done together of a lane, in tokens a second; 0 while it is known of none.

    Args:
        rates: of each of them, 0 while unknown. Such a one counts as the others do on average: it has just come.
    """
    known = [rate for rate in rates if rate > 0]
    return sum(known) / len(known) * len(rates) if known else 0.0


def most_tokens(tokens_per_s: float, budget_s: float) -> int:
    """Returns how many tokens may be in a lane with a request, for it to be answered in its time (s).

    `tokens_per_s` is what the fleet gets done of that lane. While that is unknown there is no bound.
    """
    return int(IN_TIME * budget_s * tokens_per_s) if tokens_per_s > 0 else MOST_TOKENS


def retry_after_s(tokens: int, tokens_per_s: float, share: float) -> float:
    """Returns when a request may come again that had so many tokens too many before it, in seconds.

    By then they are done at the lane's rate. `share`, from 0 to 1, is the client's place in the jitter.
    """
    drained = tokens / tokens_per_s if tokens_per_s > 0 else RETRY_LEAST_S
    return _later(drained, share)


def _later(seconds: float, share: float) -> float:
    return min(RETRY_MOST_S, max(RETRY_LEAST_S, seconds)) * (1 + JITTER * share)
