"""Whether to take a request at all, and when a refused one may come again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import NoWorker, RedbatchError, RedisUnreachable

RETRY_LEAST_S = 1.0
RETRY_MOST_S = 30.0
JITTER = 0.5
"""Refused clients come back spread over this share of the wait, not all at once."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a gateway knows of the rest.

    `redis_down_s` is how long Redis has not answered (0 while it does). `worker_unseen_s` is how long ago the last
    worker gave a sign of life: None if none ever did. `tokens` wait or run in the queue, `tokens_per_s` is what the
    live workers together get done.
    """

    redis_down_s: float = 0.0
    worker_unseen_s: float | None = 0.0
    tokens: int = 0
    tokens_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Grace:
    """How long, in seconds, requests are still taken without Redis, and without a worker."""

    redis_s: float
    worker_s: float


def admit(cluster: Cluster, grace: Grace) -> RedbatchError | None:
    """Returns why a request is refused, or None to take it."""
    if cluster.redis_down_s > grace.redis_s:
        return RedisUnreachable(
            f"Redis has not answered for {cluster.redis_down_s:.0f} s: try again later.", retry_after_s=RETRY_LEAST_S
        )
    if cluster.worker_unseen_s is None:
        return NoWorker("No worker serves this queue yet: start one, then try again.", retry_after_s=RETRY_LEAST_S)
    if cluster.worker_unseen_s > grace.worker_s:
        return NoWorker(
            f"No worker has lived for {cluster.worker_unseen_s:.0f} s: start one, then try again.",
            retry_after_s=RETRY_LEAST_S,
        )
    return None


def retry_after_s(cluster: Cluster, share: float) -> float:
    """Returns when a request that found the queue full may come again, in seconds.

    By then half of the backlog is done at the measured rate. `share`, from 0 to 1, is the client's place in the jitter.
    """
    drained = cluster.tokens / 2 / cluster.tokens_per_s if cluster.tokens_per_s > 0 else RETRY_LEAST_S
    wait = min(RETRY_MOST_S, max(RETRY_LEAST_S, drained))
    return wait * (1 + JITTER * share)
