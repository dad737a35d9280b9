"""Which of the waiting inputs make the next batch. Pure: values in, values out, `now` is an argument.

A batch costs what it is padded to: its longest input times its number. So inputs are sorted by length and a batch is a
run of neighbours in that order. Which run, depends on age: past the age bound the oldest input goes first, with its
nearest neighbours in length; before it, the run that carries the most tokens goes, because it wastes the least. Where
a run takes some of several inputs of one length, it takes those that arrived first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a batch.

    `max_tokens` counts padding; `wait_s` is from a batch's first input; `reserve_s` is the time that running a batch is
    expected to take, which a wait must leave before the oldest deadline.
    """

    max_size: int
    max_tokens: int
    wait_s: float = 0.0
    age_bound_s: float = 0.2
    reserve_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """An input that waits: its length in tokens, since when, until when. One that is `alone` shares no batch."""

    tokens: int
    since: float
    deadline: float
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The next batch and the inputs whose deadline has passed, as indices into what was waiting.

    No batch and a `wake_at`: wait until then for more. `full` says that no waiting input would still have fitted.
    """

    batch: tuple[int, ...] = ()
    expired: tuple[int, ...] = ()
    wake_at: float | None = None
    full: bool = False


def plan(waiting: Sequence[Waiting], limits: Limits, now: float) -> Plan:
    """Returns what to do with what waits, which is in the order of arrival."""
    expired = tuple(i for i, each in enumerate(waiting) if each.deadline <= now)
    live = [i for i, each in enumerate(waiting) if each.deadline > now]
    if not live:
        return Plan(expired=expired)
    shared = [i for i in live if not waiting[i].alone]
    oldest = min(live, key=lambda i: waiting[i].since)
    overdue = now - waiting[oldest].since >= limits.age_bound_s
    if not shared or (overdue and waiting[oldest].alone):
        return Plan(batch=(oldest,), expired=expired, full=True)
    order = sorted(shared, key=lambda i: waiting[i].tokens)  # sorted() is stable: ties stay in the order of arrival
    lengths = [waiting[i].tokens for i in order]
    anchor = order.index(oldest) if overdue else None
    start, stop = _richest(lengths, limits) if anchor is None else _around(lengths, anchor, limits)
    full = stop - start < len(order) or _is_full(lengths[-1], len(order), limits)
    if not full and limits.wait_s > 0:
        wake_at = _wake_at([waiting[i] for i in shared], limits)
        if now < wake_at:
            return Plan(expired=expired, wake_at=wake_at)
    return Plan(batch=tuple(order[at] for at in _in_turn(lengths, start, stop, anchor)), expired=expired, full=full)


def _fits(longest: int, number: int, limits: Limits) -> bool:
    """One input always fits: it has been cut to what the model takes."""
    return number <= limits.max_size and (number == 1 or longest * number <= limits.max_tokens)


def _is_full(longest: int, number: int, limits: Limits) -> bool:
    return not _fits(longest, number + 1, limits)


def _around(lengths: list[int], anchor: int, limits: Limits) -> tuple[int, int]:
    """The run that holds the anchor, grown on the side where the next input is nearer in length."""
    start, stop = anchor, anchor + 1
    while True:
        longer = stop < len(lengths) and _fits(lengths[stop], stop + 1 - start, limits)
        shorter = start > 0 and _fits(lengths[stop - 1], stop + 1 - start, limits)
        if longer and shorter:
            shorter = lengths[anchor] - lengths[start - 1] <= lengths[stop] - lengths[anchor]
        if shorter:
            start -= 1
        elif longer:
            stop += 1
        else:
            return start, stop


def _richest(lengths: list[int], limits: Limits) -> tuple[int, int]:
    """Of the runs into which the order falls from its longest input down, the one with the most tokens."""
    best, most = (0, 0), -1
    stop = len(lengths)
    while stop > 0:
        longest = lengths[stop - 1]
        number = min(limits.max_size, max(1, limits.max_tokens // max(1, longest)), stop)
        start = stop - number
        tokens = sum(lengths[start:stop])
        if tokens >= most:  # of equals the shorter inputs: more answers for the same work
            best, most = (start, stop), tokens
        stop = start
    return best


def _in_turn(lengths: list[int], start: int, stop: int, anchor: int | None) -> list[int]:
    """The places of a run, those of its shortest length exchanged for the first of that length, the anchor kept."""
    first, ties = bisect_left(lengths, lengths[start]), min(stop, bisect_right(lengths, lengths[start])) - start
    shortest = list(range(first, first + ties))
    if anchor is not None and first + ties <= anchor < start + ties:
        shortest[-1] = anchor
    return [*shortest, *range(start + ties, stop)]


def _wake_at(shared: Sequence[Waiting], limits: Limits) -> float:
    first = min(each.since for each in shared)
    return min(first + limits.wait_s, min(each.deadline for each in shared) - limits.reserve_s)
