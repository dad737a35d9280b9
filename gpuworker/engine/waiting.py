"""The tokenized inputs that wait for a batch. Those with the same content stand there as one, and are computed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from gpuworker.policy.batching import Limits, Plan, Turn, plan
from gpuworker.engine.work import Batch, Item, Row
from gpuworker.policy.bulk_limit import Guests
from gpuworker.policy.fair_share import Turns

LEAST_IN_SIGHT = 256
MANY_BATCHES = 4
"""Of bulk, the first so many full batches are in sight of the plan: enough to find some of a length, however much there
is. Without padding they go in the order of arrival, and one batch will do."""


class Shelf:
    """What waits: each lane in the order of arrival, and suspects apart. It has no lock of its own.

    Args:
        limits: as set: how the lanes take turns, and what room interactive inputs leave for bulk beside them.
        runners: how many batches run at once.

    Attributes:
        tokens: those of all rows, without padding.
        bulk_leads: whether it was bulk's turn at the last plan.
        ready: a batch that was taken, and has not begun.
    """

    def __init__(self, limits: Limits, runners: int) -> None:
        self._interactive: dict[object, Row] = {}
        self._bulk: dict[object, Row] = {}
        self._suspects: dict[object, Row] = {}
        self._in_sight = limits.max_size if limits.packed else max(LEAST_IN_SIGHT, MANY_BATCHES * limits.max_size)
        self._turns = Turns(limits.bulk_share, limits.bulk_age_bound_s)
        self._guests = Guests(limits.bulk_stretch, runners)
        self.tokens = 0
        self.bulk_leads = False
        self.ready: Batch | None = None
        self._planned, self._bulk_led = 0.0, False
        self._seconds, self._filled = 0.0, False

    def __bool__(self) -> bool:
        return bool(self._interactive or self._bulk or self._suspects)

    @property
    def has_work(self) -> bool:
        """Whether anything waits, be it in a batch that is ready."""
        return bool(self) or self.ready is not None

    def add(self, items: Iterable[Item]) -> None:
        """Puts inputs on the shelf, each beside those with the same content. A suspect joins nobody."""
        for item in items:
            if item.waiting.suspect:
                self._suspects[item.work.key, item.at] = Row([item])
                self.tokens += item.encoded.tokens
            else:
                self._join(item)

    def plan(self, limits: Limits, now: float, *, busy: bool, suspect_ran: bool) -> Plan:
        """Returns what to do now; its indices are rows that are in sight."""
        owed = self._turns.owed(now)
        self.bulk_leads = owed > 0
        turn = Turn(busy, suspect_ran, owed)
        limits = limits._replace(bulk_tokens=self._guests.bulk_tokens(limits.costs, now))
        return plan([row.waiting for _, row in self._seen()], limits, now, turn)

    def take(self, made: Plan, now: float) -> tuple[tuple[Row, ...], list[Item]]:
        """Takes off the rows of a plan's batch, and the inputs that expire; returns both."""
        seen, until = list(self._seen()), now + made.seconds
        self._seconds = made.seconds
        late = [item for i in made.expired for item in seen[i][1].items if item.waiting.deadline <= until]
        return tuple(self._pop(seen[i][0]) for i in made.batch), late

    def begins(self, rows: Iterable[Row], now: float) -> None:
        """Takes in that a batch begins which was planned or taken last, for whose lanes take turns."""
        batch = [row.waiting for row in rows]
        guests = [each.tokens for each in batch if not each.bulk]
        interactive = sum(guests)
        bulk = sum(each.tokens for each in batch) - interactive
        self._filled = bulk > 0
        self._guests.began(len(guests), interactive, bulk, now)
        self._turns.took(interactive, bulk, led=self.bulk_leads and bulk > 0, waits=bool(self._bulk), now=now)

    def is_unsettled(self, now: float) -> bool:
        """Whether a batch that is made ready now would hardly be run.

        The one that runs has bulk in it, so that has the next; and some interactive input comes before it begins.
        """
        return self._filled and self._guests.coming(self._seconds, now) >= 1

    def hold(self, ready: Batch, planned: float, *, bulk_led: bool) -> None:
        """Holds a batch ready; says when it was planned, and whether it was bulk's turn."""
        self.ready, self._planned, self._bulk_led = ready, planned, bulk_led

    def take_ready(self) -> Batch | None:
        """Returns the batch that is held ready. If bulk in it would hold up what came since, it is put back instead."""
        ready, self.ready = self.ready, None
        if ready is None:
            return None
        outranked = any(row.waiting.bulk for row in ready.rows) and any(
            row.items[-1].shelved > self._planned for row in self._interactive.values()
        )
        if outranked and not self._bulk_led:
            self._put_back(ready.rows)
            return None
        self.bulk_leads = self._bulk_led
        return ready

    def sweep(self) -> None:
        """Removes the inputs of entries that have ended. What is left of a row may be bulk alone."""
        for lane in (self._interactive, self._bulk, self._suspects):
            for key, row in list(lane.items()):
                if any(item.work.over for item in row.items):
                    live = [item for item in row.items if not item.work.over]
                    if not live:
                        self._pop(key)
                    row.items = live
                    if live and lane is self._interactive and row.waiting.bulk:
                        self._bulk[key] = lane.pop(key)

    def _join(self, item: Item) -> None:
        key = item.content
        row = self._interactive.get(key) or self._bulk.get(key)
        if row is None:
            self._put(key, Row([item]))
        else:
            row.items.append(item)
            if not item.waiting.bulk and key in self._bulk:
                self._interactive[key] = self._bulk.pop(key)

    def _put(self, key: object, row: Row) -> None:
        waiting = row.waiting
        lane = self._suspects if waiting.suspect else self._bulk if waiting.bulk else self._interactive
        lane[key] = row
        self.tokens += row.encoded.tokens

    def _pop(self, key: object) -> Row:
        row = self._interactive.pop(key, None) or self._suspects.pop(key, None) or self._bulk.pop(key)
        self.tokens -= row.encoded.tokens
        return row

    def _seen(self) -> Iterator[tuple[object, Row]]:
        """The rows that a plan chooses from, with their keys."""
        bulk = islice(self._bulk.items(), self._in_sight)
        return chain(self._interactive.items(), self._suspects.items(), bulk)

    def _put_back(self, rows: Iterable[Row]) -> None:
        """Puts rows back to where they were, before all that came since. What of them has ended meanwhile is left out.

        There may be thousands that came since: those stay as they are.
        """
        lanes: tuple[dict[object, Row], dict[object, Row]] = ({}, {})
        for row in rows:
            row.items = [item for item in row.items if not item.work.over]
            if not row.items:
                continue
            key = row.items[0].content
            if (other := self._interactive.get(key) or self._bulk.get(key)) is not None:
                self._pop(key)
                row.items += other.items
            lanes[row.waiting.bulk][key] = row
            self.tokens += row.encoded.tokens
        self._interactive, self._bulk = lanes[False] | self._interactive, lanes[True] | self._bulk
