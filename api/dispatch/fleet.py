"""What the heartbeats of all workers say together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from shared.errors import RevisionGoneError
from shared.long_entries import is_long, min_long_tokens
from shared.messages import DOES_NOT_LOAD, DRAINING, FAILING, LOADING, STANDBY, Heartbeat
from shared.tenants import ActiveTenants


def fleet_rate(rates: Sequence[float]) -> float:
    """Returns the throughput of all ready workers in one lane, in tokens per second; 0 if no worker's rate is known.

    Args:
        rates: the rate of each worker, 0 while unknown. A worker whose rate is unknown has just started: it counts
            with the mean of the others.
    """
    known = [rate for rate in rates if rate > 0]
    return sum(known) / len(known) * len(rates) if known else 0.0


def find_gone(revision: str, workers: Iterable[Heartbeat]) -> RevisionGoneError | None:
    """Returns the error for a request that is pinned to a revision which no worker has, nor may have once it is ready.

    None while no worker is alive: then none says that the revision is gone for good.
    """
    known = {each.revision for each in workers}  # "" while a model loads
    if not known or not known.isdisjoint(("", revision)):
        return None
    return RevisionGoneError(
        f"No worker has this revision of the model; there is {', '.join(sorted(known))}. Vectors of two revisions "
        "cannot be compared: build the index again with one that is there, or start a worker that has this one.",
        param="model",
    )


class LongBacklog(NamedTuple):
    """Long entries that workers hold; they run short ones first (gpuworker.policy.short_first).

    What still waits in the stream is read in order, so it is not part of this.

    Attributes:
        tokens: of these entries.
        min_tokens: the fewest tokens that make an entry long.
        max_batch_size: the smallest maximum number of inputs of a batch.
    """

    tokens: int = 0
    min_tokens: int = 0
    max_batch_size: int = 0

    def overtaken_tokens(self, tokens: int, inputs: int) -> int:
        """Returns how many tokens an interactive request of these tokens and inputs need not wait for."""
        return 0 if is_long(tokens, inputs, self.min_tokens, self.max_batch_size) else self.tokens


def long_backlog(workers: Sequence[Heartbeat]) -> LongBacklog:
    """Returns the long entries of the ready workers, any of which may take the next request."""
    known = [each for each in workers if each.max_batch_tokens and each.max_batch_size]
    if not known:
        return LongBacklog()
    return LongBacklog(
        sum(each.long_tokens for each in known),
        min(min_long_tokens(each.max_batch_tokens) for each in known),
        min(each.max_batch_size for each in known),
    )


def sum_tenants(shards: Sequence[ActiveTenants]) -> ActiveTenants:
    """Returns the active tenants of all shards: a named one is on one of them, the anonymous one may be on each."""
    named = sum(each.named for each in shards)
    return ActiveTenants(named + max((each.weights - each.named for each in shards), default=0.0), named)


def find_failure(workers: Sequence[Heartbeat], recent_hosts: Iterable[str]) -> tuple[str, float]:
    """Returns the type of the exception and the time to the next attempt if the model fails on all; else "" and 0.

    A worker that loads a model which did not load on its host before is not expected to succeed. A host on which it
    does not load says nothing of others: workers on standby and those that drain may have it, and a worker that was
    ready a moment ago, on one of `recent_hosts`, may only start again.
    """
    serving = [each for each in workers if each.state not in (STANDBY, DRAINING)]
    failing = [each for each in serving if each.state == FAILING]
    failed_at = {each.host: each.started_ms for each in failing if each.failing == DOES_NOT_LOAD}
    again = [each for each in serving if each.state == LOADING and each.started_ms > failed_at.get(each.host, inf)]
    if not failing or len(failing) + len(again) < len(serving):
        return "", 0.0
    first = min(failing, key=lambda each: (each.failing == DOES_NOT_LOAD, each.retry_s))
    if first.failing == DOES_NOT_LOAD and (len(serving) < len(workers) or not failed_at.keys() >= set(recent_hosts)):
        return "", 0.0
    return first.failing or "no reason", first.retry_s
