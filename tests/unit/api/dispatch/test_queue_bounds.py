"""The bounds of the shards of a queue."""

from __future__ import annotations

import pytest

from api.dispatch.queue_bounds import bound_of_shard, fitting_bound
from api.settings_groups import QueueLimits
from shared.keys import BULK, INTERACTIVE
from shared.messages import NewEntry
from shared.producer import QueueBound, Submission

PART = QueueBound(10, 100, 1_000)


def submission(lane: int, *sizes: int) -> Submission:
    """Returns a request of entries with these numbers of inputs, each of ten tokens and a hundred bytes."""
    entries = tuple(NewEntry(i, n, 10 * n, b"", 100 * n) for i, n in enumerate(sizes))
    return Submission("r", entries, 1_000, lane)


@pytest.mark.parametrize(
    ("submissions", "bound"),
    [
        ([], PART),
        ([submission(INTERACTIVE, 4, 4), submission(INTERACTIVE, 6)], PART),
        ([submission(INTERACTIVE, 8, 8), submission(INTERACTIVE, 2)], QueueBound(16, 160, 1_600)),
        ([submission(BULK, 8)], QueueBound(16, 160, 1_600)),
    ],
)
def test_a_large_request_fits_into_an_empty_shard(submissions: list[Submission], bound: QueueBound) -> None:
    """As it fits into one Redis; what is bulk may take half of a bound. Several requests together get no more."""
    assert fitting_bound(PART, submissions) == bound


def test_shards_have_equal_parts() -> None:
    """At least one of each."""
    limits = QueueLimits(max_inputs=20, max_tokens=7, max_bytes=1)
    assert bound_of_shard(limits, 2) == QueueBound(10, 3, 1)
