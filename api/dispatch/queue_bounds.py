"""The bounds of a queue: how much it may hold. Each of its shards has an equal part of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from api.settings_groups import QueueLimits
from shared.errors import TooLargeError
from shared.keys import INTERACTIVE
from shared.messages import NewEntry
from shared.producer import MAX_BULK_SHARE, QueueBound, Submission


def bound_of_shard(limits: QueueLimits, num_shards: int) -> QueueBound:
    """Returns the bound of one of several shards that share the bounds of a queue."""
    return QueueBound(
        max(1, limits.max_inputs // num_shards),
        max(1, limits.max_tokens // num_shards),
        max(1, limits.max_bytes // num_shards),
    )


def fitting_bound(bound: QueueBound, submissions: Sequence[Submission]) -> QueueBound:
    """Returns the bound of a shard, or more for a large request: it fits while little else is in the shard.

    Otherwise a request that one Redis accepts would never be accepted by several that have equal parts of its bound.
    """
    inputs, tokens, num_bytes = bound.inputs, bound.tokens, bound.bytes
    for each in submissions:
        share = _share_of(each.lane)
        inputs = max(inputs, ceil(sum(entry.n for entry in each.new_entries) / share))
        tokens = max(tokens, ceil(sum(entry.cost for entry in each.new_entries) / share))
        num_bytes = max(num_bytes, ceil(sum(entry.counted_bytes for entry in each.new_entries) / share))
    return QueueBound(inputs, tokens, num_bytes)


def _share_of(lane: int) -> float:
    return 1.0 if lane == INTERACTIVE else MAX_BULK_SHARE


def check_fits(new_entries: Sequence[NewEntry], lane: int, bound: QueueBound) -> None:
    """Raises TooLargeError if even an empty queue would reject the request, so that a retry would never help."""
    share = _share_of(lane)
    inputs = tokens = num_bytes = 0
    for entry in new_entries:
        inputs += entry.n
        tokens += entry.cost
        num_bytes += entry.counted_bytes
    for number, maximum, counted, setting in (
        (inputs, bound.inputs, "{} inputs", "max_queue_inputs"),
        (tokens, bound.tokens, "About {} tokens", "max_queue_tokens"),
        (num_bytes, bound.bytes, "{} bytes", "max_queue_bytes"),
    ):
        if number > maximum * share:
            raise TooLargeError(
                f"{counted.format(number)} exceed the maximum of this lane ({maximum * share:.0f}): send less at "
                f"once, or raise the setting {setting} of the gateways."
            )
