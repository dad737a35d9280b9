"""Which of the waiting inputs make the next batch. Pure: values in, values out, `now` is an argument.

A batch costs what it is padded to, its longest input times its number, and a fixed part (`overhead_tokens`). So inputs
are sorted by length, a batch is a run of neighbours in that order, and of all runs the one goes that gives the most
tokens for its cost: one input more shares the fixed part, until its padding costs more than it saves. Past the age
bound it is the best run of those that hold the oldest input. Where a run takes some of several inputs of one length,
it takes those that arrived first.

A model that runs packed batches pads nothing, whatever their lengths: then inputs go in the order of arrival.

Interactive inputs go before those of bulk, which fill the room that such a batch leaves; where batches are padded, with
what is no longer than its longest. When it is bulk's turn (gpuworker.policy.fair_share), it is the other way round; without padding
as much of bulk goes first as it is owed, and no more. While interactive inputs come, which wait for whatever runs, bulk
makes no batch larger than a bound of its own (gpuworker.policy.bulk_limit).

An input that would be answered late, by what the batch it is in is expected to take, makes way for one that would not:
under overload a queue holds little else than inputs about to expire, and all work would be in vain.

A *suspect* is an input whose run began before and did not end: the engine died in it, and it may be to blame. It runs
with nothing beside it but the other inputs of its entry, which is accused as a whole: so no other is accused in its
place. Suspects go after all that waited when they came back: those that ran once when an engine died, then those that
ran twice. Then, or once they have let others go first for long enough, a batch of these and a suspect take turns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from gpuworker.policy.costs import Costs
from gpuworker.policy.batch_wait import Forming, Outlook

OVERHEAD_TOKENS = 32.0
"""MiniLM on one core: 5 ms for any batch and 0.155 ms for each of its tokens. Padded batches soon tell their own."""


SUSPECT_BOUND_S = 1.0
"""How long a suspect lets others go first, however many were there before it: they may be more than can be served."""

LEAST_PARTS = 2
"""A single runner's batch leaves as much behind it as it takes."""

SMALL_BATCH = 8
"""A batch of so many times its fixed part is not split: that part takes a ninth of its time."""


class Limits(NamedTuple):
    """Bounds of a batch.

    `max_tokens` counts padding, of which a `packed` batch has none. `wait_s` is from a batch's first input; where it is
    None, the `outlook` decides, and without one nobody waits. `reserve_s` is the time that running a batch is expected
    to take, which a wait must leave before the oldest deadline. `overhead_tokens` is the part of a batch's cost that
    does not depend on what is in it, as the number of tokens that would take as long. `costs` are what batches take,
    once that is known. `bulk_share` and `bulk_age_bound_s` are those of gpuworker.policy.fair_share, `bulk_stretch` is that of
    gpuworker.policy.bulk_limit, and `bulk_tokens` what follows from it now: as `max_tokens`, of a batch with bulk in it.
    """

    max_size: int
    max_tokens: int
    wait_s: float | None = 0.0
    age_bound_s: float = 0.2
    reserve_s: float = 0.0
    overhead_tokens: float = OVERHEAD_TOKENS
    packed: bool = False
    costs: Costs | None = None
    outlook: Outlook | None = None
    bulk_share: float = 0.1
    bulk_age_bound_s: float = 5.0
    bulk_stretch: float = 1.1
    bulk_tokens: int | None = None

    def of(self, *, bulk: bool) -> Limits:
        """Returns the limits up to which a batch takes in bulk, or interactive inputs."""
        if not bulk or self.bulk_tokens is None:
            return self
        return self._replace(max_tokens=min(self.max_tokens, self.bulk_tokens))


class Waiting(NamedTuple):
    """An input that waits: its length in tokens, since when, until when; how often its run began before; its entry.

    And whether it is `bulk`.
    """

    tokens: int
    since: float
    deadline: float
    attempts: int = 0
    entry: str = ""
    bulk: bool = False

    @property
    def suspect(self) -> bool:
        """Whether an engine may have died of it."""
        return self.attempts > 0


class Turn(NamedTuple):
    """Whether the device is busy, whether a suspect ran last, and the tokens that bulk is owed."""

    busy: bool = False
    suspect_ran: bool = False
    bulk_owed: int = 0


ANYONES = Turn()


class Plan(NamedTuple):
    """The next batch and the inputs that expire, as indices into what was waiting.

    Their deadline has passed, or will have within the `seconds` that the batch takes. No batch and a `wake_at`: wait
    until then for more. `full` says that more inputs would not have made it larger.
    """

    batch: tuple[int, ...] = ()
    expired: tuple[int, ...] = ()
    wake_at: float | None = None
    full: bool = False
    seconds: float = 0.0


def plan(waiting: Sequence[Waiting], limits: Limits, now: float, turn: Turn = ANYONES) -> Plan:
    """Returns what to do with what waits, which is in the order of arrival.

    While the device is busy, no suspect begins; when one is due, nothing does, so that the device comes free.
    """
    shared: list[int] = []
    suspects: list[int] = []
    over: list[int] = []
    for i, each in enumerate(waiting):
        (over if each.deadline <= now else suspects if each.suspect else shared).append(i)
    expired = tuple(over)
    due = _suspects_due(waiting, shared, suspects)
    if not shared or (now >= due and not turn.suspect_ran):
        if turn.busy or not suspects:
            return Plan(expired=expired)
        next_one = waiting[min(suspects, key=lambda i: (waiting[i].attempts, waiting[i].since))]
        return Plan(tuple(i for i in suspects if waiting[i].entry == next_one.entry), expired, full=True)
    first, then = _lanes(waiting, shared, bulk_first=turn.bulk_owed > 0)
    full = _is_full(waiting, shared, first, limits)
    if not full and (limits.wait_s or limits.outlook):
        wake_at = min(due, _wake_at([waiting[i] for i in first], limits, now))
        if now < wake_at:
            return Plan(expired=expired, wake_at=wake_at)
    batch = _batch(waiting, first, then, Moment(limits, now, turn.bulk_owed))
    seconds, late = _seconds(waiting, batch, limits), set[int]()
    while (more := {i for i in batch if waiting[i].deadline <= now + seconds}) and len(more) < len(first) + len(then):
        late |= more
        first, then = _lanes(waiting, [i for i in (*first, *then) if i not in more], bulk_first=turn.bulk_owed > 0)
        full = False
        batch = _batch(waiting, first, then, Moment(limits, now, turn.bulk_owed))
        seconds = _seconds(waiting, batch, limits)
    if more and (alone := _in_time_alone(waiting, late, limits, now)):
        batch, seconds = alone, _seconds(waiting, alone, limits)
    expired += tuple(sorted(i for i in late if waiting[i].deadline <= now + seconds))
    return Plan(batch=batch, expired=expired, full=full, seconds=seconds)


def _suspects_due(waiting: Sequence[Waiting], shared: list[int], suspects: list[int]) -> float:
    """When suspects take turns with others: when all who were there before them have gone, and after a bound anyway.

    No later, or where workers die one after another, each would serve what is new, and a suspect none of them.
    """
    first = min((waiting[i].since for i in suspects), default=inf)
    return first if all(waiting[i].since > first for i in shared) else first + SUSPECT_BOUND_S


def _is_full(waiting: Sequence[Waiting], shared: list[int], first: list[int], limits: Limits) -> bool:
    """Whether the next batch is as large as it may be: with those that go first, or with bulk that fills it."""
    leading, filling = limits.of(bulk=waiting[first[0]].bulk), limits.of(bulk=True)
    lengths = [waiting[i].tokens for i in first]
    if is_full(lengths, leading) or not limits.packed or len(first) == len(shared):
        return is_full(lengths, leading)
    return sum(lengths) < filling.max_tokens and is_full([waiting[i].tokens for i in shared], filling)


def _lanes(waiting: Sequence[Waiting], shared: Sequence[int], *, bulk_first: bool) -> tuple[list[int], list[int]]:
    """Those of the lane that goes first, and those of the other."""
    first = [i for i in shared if waiting[i].bulk == bulk_first]
    then = [i for i in shared if waiting[i].bulk != bulk_first]
    return (first, then) if first else (then, [])


class Moment(NamedTuple):
    """What a batch depends on beside what waits."""

    limits: Limits
    now: float
    bulk_owed: int


def _batch(waiting: Sequence[Waiting], first: list[int], then: list[int], moment: Moment) -> tuple[int, ...]:
    limits, now, bulk_owed = moment
    leading = limits.of(bulk=waiting[first[0]].bulk)
    if limits.packed:
        if then and waiting[first[0]].bulk:
            first, then = _owed_first(waiting, first, then, bulk_owed)
        batch = _packed(waiting, first, leading)
        return batch + _fill_packed(waiting, then, limits, batch) if then else batch
    oldest = min(first, key=lambda i: waiting[i].since)
    overdue = now - waiting[oldest].since >= limits.age_bound_s
    batch = _padded(waiting, first, leading, oldest if overdue else None)
    return batch + _fill_padded(waiting, then, limits.of(bulk=waiting[then[0]].bulk), batch) if then else batch


def _in_time_alone(waiting: Sequence[Waiting], late: set[int], limits: Limits, now: float) -> tuple[int, ...]:
    """The oldest of those that came too late in a batch, and would not with nothing beside them; none if all would."""
    rest = [i for i in late if waiting[i].deadline > now + _seconds(waiting, (i,), limits)]
    return (min(rest, key=lambda i: (waiting[i].since, i)),) if rest else ()


def _seconds(waiting: Sequence[Waiting], batch: tuple[int, ...], limits: Limits) -> float:
    if limits.costs is None:
        return 0.0
    lengths = [waiting[i].tokens for i in batch]
    return limits.costs.seconds(sum(lengths) if limits.packed else max(lengths) * len(lengths))


def share(total_tokens: int, runners: int, limits: Limits) -> int:
    """Returns how many tokens a batch may have, so that there is something for the others that run, or come next.

    With all of it in one batch, whoever is done next would find nothing, and start on the first few inputs that come
    back. `total_tokens` is what waits and runs. A batch that is small as it is, is not made smaller: its fixed part
    would weigh too much.
    """
    parts = max(LEAST_PARTS, runners)
    return min(limits.max_tokens, max(total_tokens // parts, round(SMALL_BATCH * limits.overhead_tokens)))


def _owed_first(
    waiting: Sequence[Waiting], bulk: list[int], interactive: list[int], owed: int
) -> tuple[list[int], list[int]]:
    """The first of bulk that make up what it is owed; and all others, interactive ones first."""
    order, tokens = sorted(bulk, key=lambda i: waiting[i].since), 0
    for number, i in enumerate(order, 1):
        tokens += waiting[i].tokens
        if tokens >= owed:
            return order[:number], [*interactive, *order[number:]]
    return order, interactive


def _packed(waiting: Sequence[Waiting], shared: list[int], limits: Limits) -> tuple[int, ...]:
    order = sorted(shared, key=lambda i: waiting[i].since)
    number = tokens = 0
    for i in order[: limits.max_size]:
        tokens += waiting[i].tokens
        if number and tokens > limits.max_tokens:
            break
        number += 1
    return tuple(order[:number])


def _padded(waiting: Sequence[Waiting], shared: list[int], limits: Limits, oldest: int | None) -> tuple[int, ...]:
    order = sorted(shared, key=lambda i: waiting[i].tokens)  # sorted() is stable: ties stay in the order of arrival
    lengths = [waiting[i].tokens for i in order]
    anchor = None if oldest is None else order.index(oldest)
    start, stop = _best(lengths, limits, anchor)
    return tuple(order[at] for at in _in_turn(lengths, start, stop, anchor))


def _fill_packed(
    waiting: Sequence[Waiting], others: list[int], limits: Limits, batch: tuple[int, ...]
) -> tuple[int, ...]:
    """Those of the others for which a batch has room: interactive ones first, each in the order of arrival."""
    tokens = sum(waiting[i].tokens for i in batch)
    most = {bulk: limits.of(bulk=bulk).max_tokens for bulk in (False, True)}
    found: list[int] = []
    for i in sorted(others, key=lambda i: (waiting[i].bulk, waiting[i].since)):
        if len(batch) + len(found) == limits.max_size:
            break
        each = waiting[i]
        if tokens + each.tokens <= most[each.bulk]:
            tokens += each.tokens
            found.append(i)
    return tuple(found)


def _fill_padded(
    waiting: Sequence[Waiting], others: list[int], limits: Limits, batch: tuple[int, ...]
) -> tuple[int, ...]:
    """The longest of the others that make a batch no longer, as many as it has room for."""
    longest = max(1, *(waiting[i].tokens for i in batch))
    room = min(limits.max_size, limits.max_tokens // longest) - len(batch)
    fitting = sorted((i for i in others if waiting[i].tokens <= longest), key=lambda i: -waiting[i].tokens)
    return tuple(fitting[: max(0, room)])


def is_full(lengths: Sequence[int], limits: Limits) -> bool:
    """Says whether inputs of these lengths and one more, as long as the longest, would be too much for a batch."""
    longest = max(lengths)
    cost = sum(lengths) + longest if limits.packed else longest * (len(lengths) + 1)
    return len(lengths) >= limits.max_size or cost > limits.max_tokens


def _best(lengths: list[int], limits: Limits, anchor: int | None) -> tuple[int, int]:
    """The run with the most tokens for its cost; of those that hold the anchor, if there is one."""
    sums = [0, *accumulate(lengths)]
    best, most = (0, 0), -1.0
    for stop in _stops(lengths, anchor):
        longest = max(1, lengths[stop - 1])
        first = stop - min(limits.max_size, max(1, limits.max_tokens // longest), stop)
        if anchor is not None and first > anchor:
            break  # and so with all that end later
        last = stop - 1 if anchor is None else anchor
        worth = -1.0
        for start in range(last, first - 1, -1):
            before, worth = worth, (sums[stop] - sums[start]) / (longest * (stop - start) + limits.overhead_tokens)
            if worth < before:
                break  # the rest is shorter still, and costs as much
            if worth > most:  # of equals the shorter inputs: more answers for the same work
                best, most = (start, stop), worth
    return best


def _stops(lengths: list[int], anchor: int | None) -> Sequence[int]:
    """Where a run may end: without an anchor, of several inputs of one length behind the last alone."""
    if anchor is not None:
        return range(anchor + 1, len(lengths) + 1)
    return [*(i for i in range(1, len(lengths)) if lengths[i] != lengths[i - 1]), len(lengths)]


def _in_turn(lengths: list[int], start: int, stop: int, anchor: int | None) -> list[int]:
    """The places of a run, those of its shortest length exchanged for the first of that length, the anchor kept."""
    first, ties = bisect_left(lengths, lengths[start]), min(stop, bisect_right(lengths, lengths[start])) - start
    shortest = list(range(first, first + ties))
    if anchor is not None and first + ties <= anchor < start + ties:
        shortest[-1] = anchor
    return [*shortest, *range(start + ties, stop)]


def _wake_at(shared: Sequence[Waiting], limits: Limits, now: float) -> float:
    """Until when these are to wait for more, at most."""
    since, reserve_s = min(each.since for each in shared), limits.reserve_s
    ends = since + (limits.wait_s or 0.0)
    if limits.outlook is not None:
        lengths = [each.tokens for each in shared]
        forming = Forming(len(shared), sum(lengths) / len(lengths) if limits.packed else max(lengths), limits.packed)
        joined = limits.outlook.joined(forming)
        if joined.number > limits.max_size or joined.number * joined.each > limits.max_tokens:
            return now  # they would not fit into one batch
        ends, reserve_s = limits.outlook.until(forming, now), max(reserve_s, limits.outlook.batch_s(forming))
    return min(ends, min(each.deadline for each in shared) - reserve_s)
