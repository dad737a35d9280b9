"""The next batch: which of the waiting inputs run now. Pure: values in, values out, `now` is an argument.

Interactive inputs go before bulk, which fills the room that their batch leaves. When it is bulk's turn
(policy.fair_share), bulk goes first. Of interactive inputs short ones may go first (policy.short_first). Which inputs
of the two lanes make the best batch is in policy.composition. While interactive inputs arrive, which wait for whatever
runs, a batch that contains bulk has a lower limit (policy.bulk_limit).

With preferred sizes, a batch goes as soon as it reaches one of them, cut to the largest that it reaches. If it reaches
none, it waits for more, if there is a wait, and then goes as it is. So without a wait it goes at once.

An input that would be answered late, by the expected time of its batch, makes way for one that would not. Under
overload a queue contains hardly anything but inputs that are about to expire, and all work would be in vain.

An input of which an engine may have died runs apart from all others (policy.suspects).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from gpuworker.policy.batch_wait import PendingBatch
from gpuworker.policy.composition import CompositionContext, WaitingInput, compose_batch, split_lanes
from gpuworker.policy.limits import Limits, is_full, preferred_size
from gpuworker.policy.short_first import choose_candidates, is_long
from gpuworker.policy.suspects import next_suspects, suspects_due_at


class SchedulerState(NamedTuple):
    """What ran and runs.

    Attributes:
        busy: whether the device is busy.
        suspects_had_turn: whether it is the turn of others (policy.suspects.SuspectTurns).
        bulk_owed: tokens that bulk is owed.
        long_since_short: tokens of long inputs that ran since short ones last went before such.
    """

    busy: bool = False
    suspects_had_turn: bool = False
    bulk_owed: int = 0
    long_since_short: float = math.inf


INITIAL_STATE = SchedulerState()


class Plan(NamedTuple):
    """The next batch and the inputs that expire, as indices into the waiting inputs.

    Attributes:
        batch: what runs now. If it is empty and there is a `wake_at`, wait until then for more.
        expired: inputs whose deadline has passed, or will have passed within the `seconds` that the batch takes.
        wake_at: when to plan again, if not now.
        full: whether more inputs would not have made the batch larger.
        seconds: how long the batch is expected to take.
        passes_over: whether it leaves long inputs waiting, in favor of short ones.
    """

    batch: tuple[int, ...] = ()
    expired: tuple[int, ...] = ()
    wake_at: float | None = None
    full: bool = False
    seconds: float = 0.0
    passes_over: bool = False


def plan(waiting: Sequence[WaitingInput], limits: Limits, now: float, state: SchedulerState = INITIAL_STATE) -> Plan:
    """Returns what to do with the inputs that wait, which are in the order of arrival.

    While the device is busy, no suspect begins; when one is due, nothing begins, so that the device becomes free.
    """
    shared: list[int] = []
    suspects: list[int] = []
    over: list[int] = []
    for i, each in enumerate(waiting):
        (over if each.deadline <= now else suspects if each.suspect else shared).append(i)
    expired = tuple(over)
    due = suspects_due_at(waiting, shared, suspects)
    if not shared or (now >= due and not state.suspects_had_turn):
        if state.busy or not suspects:
            return Plan(expired=expired)
        return Plan(next_suspects(waiting, suspects), expired, full=True)
    context = CompositionContext(limits, now, state.bulk_owed, state.long_since_short)
    draft = _draft(waiting, shared, context)
    full = draft.full or _is_full(waiting, shared, draft.first, limits)
    if not (full or draft.reaches_preferred_size) and (limits.wait_s or limits.forecast):
        wake_at = min(due, _wake_at([waiting[i] for i in draft.first], limits, now))
        if now < wake_at:
            return Plan(expired=expired, wake_at=wake_at)
    draft, late = _without_late(waiting, shared, draft, context)
    expired += tuple(sorted(i for i in late if waiting[i].deadline <= now + draft.seconds))
    return Plan(draft.batch, expired, full=draft.full, seconds=draft.seconds, passes_over=draft.passes_over)


class _Draft(NamedTuple):
    """A batch, and the facts about it that a plan needs.

    Attributes:
        batch: its inputs.
        first: all inputs of the lane that goes first.
        seconds: how long it is expected to take.
        full: whether more inputs would not make it larger.
        reaches_preferred_size: whether it has reached a preferred size.
        passes_over: whether it leaves long inputs waiting, in favor of short ones.
    """

    batch: tuple[int, ...]
    first: list[int]
    seconds: float
    full: bool
    reaches_preferred_size: bool
    passes_over: bool


def _draft(waiting: Sequence[WaitingInput], rest: Sequence[int], context: CompositionContext) -> _Draft:
    """Returns the best batch of these inputs, cut to the largest preferred size that it reaches."""
    limits = context.limits
    first, then = split_lanes(waiting, rest, bulk_first=context.bulk_owed > 0)
    candidates = choose_candidates(waiting, first, context)
    batch = compose_batch(waiting, candidates, then, context)
    size = preferred_size(len(batch), limits)
    if 0 < size < len(batch):
        batch = compose_batch(waiting, candidates, then, context._replace(limits=limits._replace(max_size=size)))
    if len(candidates.inputs) < len(first):
        full = is_full([waiting[i].tokens for i in candidates.inputs], limits)
    else:
        full = _is_full(waiting, rest, first, limits)
    passes_over = candidates.is_short_first and not any(
        is_long(waiting[i], limits) and not waiting[i].bulk for i in batch
    )
    return _Draft(batch, first, _batch_seconds(waiting, batch, limits), full, size > 0, passes_over)


def _without_late(
    waiting: Sequence[WaitingInput], shared: Sequence[int], draft: _Draft, context: CompositionContext
) -> tuple[_Draft, set[int]]:
    """Returns the best batch without inputs that would be late in it, as far as others would not; and the late ones."""
    limits, now, late = context.limits, context.now, set[int]()
    rest = list(shared)
    while (newly_late := {i for i in draft.batch if waiting[i].deadline <= now + draft.seconds}) and (
        len(newly_late) < len(rest)
    ):
        late |= newly_late
        rest = [i for i in rest if i not in newly_late]
        draft = _draft(waiting, rest, context)._replace(full=False)
    if newly_late and (batch := _in_time_together(waiting, late, limits, now)):
        draft = draft._replace(batch=batch, seconds=_batch_seconds(waiting, batch, limits))
    return draft, late


def _is_full(waiting: Sequence[WaitingInput], shared: Sequence[int], first: list[int], limits: Limits) -> bool:
    """Whether the next batch reaches its limits: with the inputs that go first, or with bulk that fills it."""
    first_limits, filling_limits = limits.for_lane(bulk=waiting[first[0]].bulk), limits.for_lane(bulk=True)
    lengths = [waiting[i].tokens for i in first]
    if is_full(lengths, first_limits) or not limits.packed or len(first) == len(shared):
        return is_full(lengths, first_limits)
    return sum(lengths) < filling_limits.max_tokens and is_full([waiting[i].tokens for i in shared], filling_limits)


def _in_time_together(waiting: Sequence[WaitingInput], late: set[int], limits: Limits, now: float) -> tuple[int, ...]:
    """The oldest of the inputs that would be late in a batch: all that are in time without the others.

    Empty if each would be late even by itself. With one input at a time, an engine that has only run single inputs, and
    takes the time of a batch to be proportional to its size, would never learn that a larger one is hardly slower.
    """
    rest = [i for i in late if waiting[i].deadline > now + _batch_seconds(waiting, (i,), limits)]
    rest = sorted(rest, key=lambda i: (waiting[i].since, i))[: limits.max_size]

    def fits(size: int) -> bool:
        batch = tuple(rest[:size])
        max_tokens = limits.for_lane(bulk=any(waiting[i].bulk for i in batch)).max_tokens
        lengths = [waiting[i].tokens for i in batch]
        tokens = sum(lengths) if limits.packed else max(lengths) * size
        ends_at = now + _batch_seconds(waiting, batch, limits)
        return tokens <= max_tokens and ends_at < min(waiting[i].deadline for i in batch)

    return tuple(rest[: max(1, bisect_left(range(1, len(rest) + 1), True, key=lambda size: not fits(size)))])


def _batch_seconds(waiting: Sequence[WaitingInput], batch: tuple[int, ...], limits: Limits) -> float:
    if limits.costs is None:
        return 0.0
    lengths = [waiting[i].tokens for i in batch]
    return limits.costs.least_seconds(sum(lengths) if limits.packed else max(lengths) * len(lengths))


def _wake_at(shared: Sequence[WaitingInput], limits: Limits, now: float) -> float:
    """Until when these inputs wait for more, at most."""
    since, reserve_s = min(each.since for each in shared), limits.reserve_s
    ends = since + (limits.wait_s or 0.0)
    if limits.forecast is not None:
        lengths = [each.tokens for each in shared]
        pending = PendingBatch(
            len(shared), sum(lengths) / len(lengths) if limits.packed else max(lengths), limits.packed
        )
        joined = limits.forecast.join(pending)
        if joined.num_inputs > limits.max_size or joined.num_inputs * joined.input_tokens > limits.max_tokens:
            return now  # they would not fit into one batch
        ends, reserve_s = limits.forecast.wake_at(pending, now), max(reserve_s, limits.forecast.batch_s(pending))
    return min(ends, min(each.deadline for each in shared) - reserve_s)
