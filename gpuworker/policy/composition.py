"""Which inputs of two lanes make the best batch. Pure: values in, values out.

The cost of a batch is its padded size, its longest input times its number of inputs, plus a fixed part
(`overhead_tokens`). So inputs are sorted by length, and a batch is a run of neighbors in that order: the run with the
most tokens for its cost. Each further input shares the fixed part, until its padding costs more than it saves. Past the
age bound it is the best run that contains the oldest input. If a run contains only some of several inputs of one
length, it takes those that arrived first.

A model that runs packed batches has no padding, whatever the lengths: its inputs are taken in the order of arrival,
except that short ones may go first (policy.short_first).

The second lane fills the room that such a batch leaves; if batches are padded, only with inputs no longer than its
longest. Without padding, bulk that goes first takes only the tokens that it is owed, and no more.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from gpuworker.policy.limits import Limits
from shared.record import Record


class WaitingInput(Record, frozen=True):
    """An input that waits for a batch.

    Attributes:
        tokens: its length.
        since: when its wait began, s.
        deadline: until when its answer is useful, s.
        attempts: runs of it that began before and did not end.
        entry: the key of its entry.
        bulk: whether it is of the bulk lane.
        entry_inputs: number of inputs of its entry.
        entry_tokens: tokens of all of these.
    """

    tokens: int
    since: float
    deadline: float
    attempts: int = 0
    entry: str = ""
    bulk: bool = False
    entry_inputs: int = 1
    entry_tokens: int = 0

    @property
    def suspect(self) -> bool:
        """Whether an engine may have died of it."""
        return self.attempts > 0


class CompositionContext(NamedTuple):
    """What a batch depends on apart from the waiting inputs.

    Attributes:
        limits: of the batch.
        now: the time, s.
        bulk_owed: tokens that bulk is owed.
        long_since_short: tokens of long inputs that ran since short ones last went before such.
    """

    limits: Limits
    now: float
    bulk_owed: int
    long_since_short: float = math.inf


class Candidates(NamedTuple):
    """The inputs of the first lane from which a batch is made, in the order in which a packed batch takes them.

    Attributes:
        inputs: their indices.
        anchor: one that the batch has to contain; None: any.
        is_short_first: whether short inputs are preferred to long ones that wait too.
    """

    inputs: list[int]
    anchor: int | None = None
    is_short_first: bool = False


def split_lanes(
    waiting: Sequence[WaitingInput], shared: Sequence[int], *, bulk_first: bool
) -> tuple[list[int], list[int]]:
    """Returns the inputs of the lane that goes first, and those of the other."""
    first = [i for i in shared if waiting[i].bulk == bulk_first]
    then = [i for i in shared if waiting[i].bulk != bulk_first]
    return (first, then) if first else (then, [])


def compose_batch(
    waiting: Sequence[WaitingInput], candidates: Candidates, then: list[int], context: CompositionContext
) -> tuple[int, ...]:
    """Returns the indices of a batch of the lane that goes first, filled with inputs of the lane `then`."""
    limits, first = context.limits, candidates.inputs
    first_limits = limits.for_lane(bulk=waiting[first[0]].bulk)
    if limits.packed:
        if then and waiting[first[0]].bulk:
            first, then = _owed_first(waiting, first, then, context.bulk_owed)
        batch = _packed(waiting, first, first_limits)
        return batch + _fill_packed(waiting, then, limits, batch) if then else batch
    batch = _padded(waiting, first, first_limits, candidates.anchor)
    return batch + _fill_padded(waiting, then, limits.for_lane(bulk=waiting[then[0]].bulk), batch) if then else batch


def _owed_first(
    waiting: Sequence[WaitingInput], bulk: list[int], interactive: list[int], owed: int
) -> tuple[list[int], list[int]]:
    """The first inputs of bulk that add up to what it is owed; and all others, interactive ones first."""
    tokens = 0
    for number, i in enumerate(bulk, 1):
        tokens += waiting[i].tokens
        if tokens >= owed:
            return bulk[:number], [*interactive, *bulk[number:]]
    return bulk, interactive


def _packed(waiting: Sequence[WaitingInput], order: list[int], limits: Limits) -> tuple[int, ...]:
    number = tokens = 0
    for i in order[: limits.max_size]:
        tokens += waiting[i].tokens
        if number and tokens > limits.max_tokens:
            break
        number += 1
    return tuple(order[:number])


def _padded(waiting: Sequence[WaitingInput], shared: list[int], limits: Limits, oldest: int | None) -> tuple[int, ...]:
    order = sorted(shared, key=lambda i: waiting[i].tokens)  # sorted() is stable: ties stay in the order of arrival
    lengths = [waiting[i].tokens for i in order]
    anchor = None if oldest is None else order.index(oldest)
    start, stop = _best_run(lengths, limits, anchor)
    return tuple(order[at] for at in _by_arrival(lengths, start, stop, anchor))


def _fill_packed(
    waiting: Sequence[WaitingInput], others: list[int], limits: Limits, batch: tuple[int, ...]
) -> tuple[int, ...]:
    """The other inputs for which a batch has room: interactive ones first, each lane in the order of arrival."""
    tokens = sum(waiting[i].tokens for i in batch)
    max_tokens = {bulk: limits.for_lane(bulk=bulk).max_tokens for bulk in (False, True)}
    filling: list[int] = []
    for i in sorted(others, key=lambda i: (waiting[i].bulk, waiting[i].since)):
        if len(batch) + len(filling) == limits.max_size:
            break
        each = waiting[i]
        if tokens + each.tokens <= max_tokens[each.bulk]:
            tokens += each.tokens
            filling.append(i)
    return tuple(filling)


def _fill_padded(
    waiting: Sequence[WaitingInput], others: list[int], limits: Limits, batch: tuple[int, ...]
) -> tuple[int, ...]:
    """The longest of the others that do not lengthen a batch, up to the room that it has."""
    longest = max(1, *(waiting[i].tokens for i in batch))
    room = min(limits.max_size, limits.max_tokens // longest) - len(batch)
    fitting = sorted((i for i in others if waiting[i].tokens <= longest), key=lambda i: -waiting[i].tokens)
    return tuple(fitting[: max(0, room)])


def _best_run(lengths: list[int], limits: Limits, anchor: int | None) -> tuple[int, int]:
    """The run with the most tokens for its cost; with an anchor, of the runs that contain it."""
    sums = [0, *accumulate(lengths)]
    best, max_worth = (0, 0), -1.0
    for stop in _run_ends(lengths, anchor):
        longest = max(1, lengths[stop - 1])
        first = stop - min(limits.max_size, max(1, limits.max_tokens // longest), stop)
        if anchor is not None and first > anchor:
            break  # all runs that end later do not contain it either
        last = stop - 1 if anchor is None else anchor
        worth = -1.0
        for start in range(last, first - 1, -1):
            before, worth = worth, (sums[stop] - sums[start]) / (longest * (stop - start) + limits.overhead_tokens)
            if worth < before:
                break  # the other inputs are shorter still, and cost the same
            if worth > max_worth:  # of equals the run of shorter inputs: more answers for the same work
                best, max_worth = (start, stop), worth
    return best


def _run_ends(lengths: list[int], anchor: int | None) -> Sequence[int]:
    """Where a run may end: without an anchor, only behind the last of several inputs of one length."""
    if anchor is not None:
        return range(anchor + 1, len(lengths) + 1)
    return [*(i for i in range(1, len(lengths)) if lengths[i] != lengths[i - 1]), len(lengths)]


def _by_arrival(lengths: list[int], start: int, stop: int, anchor: int | None) -> list[int]:
    """The places of a run, in which the first inputs of its shortest length replace the others; an anchor stays."""
    first, ties = bisect_left(lengths, lengths[start]), min(stop, bisect_right(lengths, lengths[start])) - start
    shortest = list(range(first, first + ties))
    if anchor is not None and first + ties <= anchor < start + ties:
        shortest[-1] = anchor
    return [*shortest, *range(start + ties, stop)]
