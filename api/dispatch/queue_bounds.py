"""The bounds of a queue: how much it may hold. Each of its shards has an equal part of them."""

from __future__ import annotations

from collections.abc import Sequence

from api.settings_groups import QueueLimits
from shared.errors import TooLargeError
from shared.keys import INTERACTIVE
from shared.messages import NewEntry
from shared.producer import MAX_BULK_SHARE, QueueBound


def bound_of_shard(limits: QueueLimits, num_shards: int) -> QueueBound:
    """Returns the bound of one of several shards that share the bounds of a queue."""
    return QueueBound(
        max(1, limits.max_inputs // num_shards),
        max(1, limits.max_tokens // num_shards),
        max(1, limits.max_bytes // num_shards),
    )


def check_fits(new_entries: Sequence[NewEntry], lane: int, bound: QueueBound) -> None:
    """Raises TooLargeError if even an empty queue would reject the request, so that a retry would never help."""
    share = 1.0 if lane == INTERACTIVE else MAX_BULK_SHARE
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
