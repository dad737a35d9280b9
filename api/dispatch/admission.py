"""Whether to accept a request, and when a refused client may retry. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil

from shared.errors import (
    DeadlineExceededError,
    ModelFailingError,
    NoWorkerError,
    OverloadedError,
    RateLimitedError,
    RedbatchError,
    RedisUnreachableError,
    TooLargeError,
)
from shared.messages import DOES_NOT_LOAD, LOADING, MAX_TOKENS, READY
from shared.record import Record
from shared.tenants import Quota, QuotaWait

MIN_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 30.0
QUEUE_TIME_SHARE = 0.8
"""Share of a request's time budget that the estimated time in the queue may take; the rest covers estimation errors."""

JITTER = 0.5
"""Retries of refused clients are spread over this share of the wait, so that they do not come all at once."""

LIMIT_JITTER, MAX_LIMIT_JITTER_S = 0.1, 5.0
"""The same for clients whose tenant is rate limited; smaller, as the time of the next tokens is known exactly."""


class ClusterState(Record, frozen=True):
    """The state of Redis and of the fleet, as a gateway knows it.

    `redis_down_s` is how long Redis has not answered (0 while it answers). `worker_unseen_s` is the time since the last
    sign of life of any worker, or None if there was none. `memory_ratio` is the share of its memory that Redis uses. If
    the model fails on all live workers, `failing` has the type of its last exception, or DOES_NOT_LOAD, and the first
    of these tries again in `retry_s`.
    """

    redis_down_s: float = 0.0
    worker_unseen_s: float | None = 0.0
    memory_ratio: float = 0.0
    failing: str = ""
    retry_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Grace:
    """How long, in seconds, requests are still accepted while Redis does not answer, and while no worker lives.

    `memory_ratio` is the share of Redis' memory up to which they are accepted: the replies to accepted requests need
    the rest.
    """

    redis_s: float
    worker_s: float
    memory_ratio: float = 0.7


def admit(cluster: ClusterState, grace: Grace, budget_s: float, jitter: float) -> RedbatchError | None:
    """Returns the error that refuses a request, or None to accept it.

    An outage of Redis that has lasted for some time is as likely as not to last as long again. So a request whose time
    budget is longer than the outage so far may wait for its end, and after the grace period no request waits.

    Args:
        cluster: the state of Redis and of the fleet.
        grace: the bounds of that state.
        budget_s: time left to the request's deadline, s.
        jitter: the client's place in the jitter, from 0 to 1.
    """
    if cluster.redis_down_s > min(grace.redis_s, budget_s):
        return redis_unreachable_error(cluster.redis_down_s, jitter)
    if cluster.worker_unseen_s is None:
        retry_after_s = _retry_s(MIN_RETRY_AFTER_S, jitter)
        return NoWorkerError("No worker serves this queue yet: start one, then try again.", retry_after_s=retry_after_s)
    if cluster.worker_unseen_s > grace.worker_s:
        return NoWorkerError(
            f"No worker has been alive for {cluster.worker_unseen_s:.0f} s: start one, then try again. "
            "If it ended by itself, its log says why.",
            retry_after_s=_retry_s(cluster.worker_unseen_s, jitter),
        )
    if cluster.failing:
        return model_failing_error(cluster, jitter)
    if cluster.memory_ratio > grace.memory_ratio:
        return OverloadedError(
            f"Redis uses {cluster.memory_ratio:.0%} of its memory: try again soon, or give Redis more memory.",
            retry_after_s=_retry_s(MIN_RETRY_AFTER_S, jitter),
        )
    return None


def redis_unreachable_error(down_s: float, jitter: float) -> RedbatchError:
    """Returns the error for a request that Redis cannot accept: it has not answered for `down_s` seconds."""
    return RedisUnreachableError(
        f"Redis has not answered for {down_s:.1f} s: try again later.", retry_after_s=_retry_s(down_s, jitter)
    )


def model_failing_error(cluster: ClusterState, jitter: float) -> RedbatchError:
    """Returns the error for a request that no worker takes, because the model fails on all of them."""
    if cluster.failing == DOES_NOT_LOAD:
        return ModelFailingError(
            "The model does not run: its workers could not load it. `redbatch queue` and their logs say why; "
            "try again when that is mended.",
            retry_after_s=_retry_s(cluster.retry_s, jitter),
        )
    return ModelFailingError(
        f"The model fails on every batch ({cluster.failing}): try again later; the workers' logs say more.",
        retry_after_s=_retry_s(cluster.retry_s, jitter),
    )


def not_ready_error(reason: str, jitter: float) -> RedbatchError:
    """Returns the error for a request that expired while no worker was ready, for this reason."""
    return DeadlineExceededError(
        f"No answer in time: {reason}. Try again when one is ready.", retry_after_s=_retry_s(MIN_RETRY_AFTER_S, jitter)
    )


def expiry_error(cluster: ClusterState, states: Collection[str], jitter: float, *, is_submitted: bool) -> RedbatchError:
    """Returns the error for a request whose deadline has passed.

    Args:
        cluster: the state of Redis and of the fleet.
        states: of the live workers.
        jitter: the client's place in the jitter, from 0 to 1.
        is_submitted: whether the request has reached the queue.
    """
    if cluster.redis_down_s > 0 and not is_submitted:
        return redis_unreachable_error(cluster.redis_down_s, jitter)
    if cluster.failing:
        return model_failing_error(cluster, jitter)
    if READY not in states:
        return not_ready_error("a worker is loading the model" if LOADING in states else "no worker is ready", jitter)
    return DeadlineExceededError(
        "No answer in time: the queue is long, or the model slow or hung. Allow more time, or add workers. "
        "If a worker's log says that the engine hangs, and an input may take that long, raise engine_hang_s."
    )


def memory_full_error(jitter: float) -> RedbatchError:
    """Returns the error for a request for whose inputs or results this gateway has no memory left."""
    return OverloadedError(
        "The requests in this gateway take all of its max_in_flight_bytes: try again soon, add gateways, or raise that "
        "setting.",
        retry_after_s=_retry_s(MIN_RETRY_AFTER_S, jitter),
    )


def quota_error(tokens: int, quota: Quota, wait: QuotaWait, jitter: float) -> RedbatchError:
    """Returns the error for a request that its tenant's quota refuses, and has the tokens for after a wait.

    Args:
        tokens: those that the request has, as estimated.
        quota: of the tenant; a request of more tokens than its whole day has is never accepted.
        wait: until the tenant has enough tokens, unless a whole day has too few.
        jitter: the client's place in the jitter, from 0 to 1.
    """
    if 0 < quota.daily_tokens < tokens:
        return TooLargeError(
            f"The request has about {tokens} tokens, and the tenant's quota is {quota.daily_tokens} a day: send fewer."
        )
    wait_s = wait.ms / 1000
    wait_s += min(wait_s * LIMIT_JITTER, MAX_LIMIT_JITTER_S) * jitter
    limit = f"The tenant's rate limit of {quota.tokens_per_s:.12g} tokens per second is exceeded"
    if wait.limit == "day":
        limit = f"The tenant has too few of its {quota.daily_tokens} tokens left for this day, which began at 00:00 UTC"
    return RateLimitedError(f"{limit}: try again in {_format_wait(wait_s)}.", retry_after_s=wait_s)


def _format_wait(seconds: float) -> str:
    """Returns a wait for people, never shorter than it is: in seconds, or in hours and minutes."""
    minutes = ceil(seconds / 60)
    if minutes <= 1:
        return f"{ceil(round(seconds * 1000) / 100) / 10:.1f} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def max_tokens(tokens_per_s: float, budget_s: float, overtaken_tokens: int = 0) -> int:
    """Returns the maximum number of tokens in a lane, with a request, for the request to be answered in time.

    Args:
        tokens_per_s: throughput of the fleet in that lane; while it is 0, unknown, there is no bound.
        budget_s: time left to the request's deadline, s.
        overtaken_tokens: those in the lane that the request does not wait for.
    """
    if tokens_per_s <= 0:
        return MAX_TOKENS
    return min(MAX_TOKENS, int(QUEUE_TIME_SHARE * budget_s * tokens_per_s) + overtaken_tokens)


def retry_after_s(tokens: int, tokens_per_s: float, jitter: float) -> float:
    """Returns after how many seconds a refused request may be retried.

    Args:
        tokens: the queued tokens above its limit; until the retry they are processed at the lane's rate.
        tokens_per_s: throughput of the fleet in that lane; 0 if unknown.
        jitter: the client's place in the jitter, from 0 to 1.
    """
    drain_s = tokens / tokens_per_s if tokens_per_s > 0 else MIN_RETRY_AFTER_S
    return _retry_s(drain_s, jitter)


def _retry_s(seconds: float, jitter: float) -> float:
    return min(MAX_RETRY_AFTER_S, max(MIN_RETRY_AFTER_S, seconds)) * (1 + JITTER * jitter)
