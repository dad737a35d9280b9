"""The tokenized inputs that wait for a batch. Those with the same content stand there as one, and are computed once."""

from __future__ import annotations

from collections.abc import Iterable

from gpuworker.batching import Limits, Plan, Turn, plan
from gpuworker.engine.work import Batch, Item, Row
from gpuworker.lanes import Turns


class Shelf:
    """What waits, in the order of arrival. It has no lock of its own.

    Args:
        turns: how the lanes take turns here.

    Attributes:
        bulk_leads: whether it was bulk's turn at the last plan.
        ready: a batch that was taken, and has not begun.
    """

    def __init__(self, turns: Turns) -> None:
        self._rows: dict[object, Row] = {}
        self._turns = turns
        self.bulk_leads = False
        self.ready: Batch | None = None
        self._planned, self._bulk_led = 0.0, False

    def __bool__(self) -> bool:
        return bool(self._rows)

    @property
    def tokens(self) -> int:
        """Tokens of all rows, without padding."""
        return sum(row.encoded.tokens for row in self._rows.values())

    def add(self, items: Iterable[Item]) -> None:
        """Puts inputs on the shelf, each beside those with the same content. A suspect joins nobody."""
        for item in items:
            key: object = (item.work.key, item.at) if item.waiting.suspect else item.content
            row = self._rows.get(key)
            if row is None:
                self._rows[key] = Row([item])
            else:
                row.items.append(item)

    def plan(self, limits: Limits, now: float, *, busy: bool, suspect_ran: bool) -> Plan:
        """Returns what to do now; its indices are rows."""
        owed = self._turns.owed(now)
        self.bulk_leads = owed > 0
        turn = Turn(busy, suspect_ran, owed)
        return plan([row.waiting for row in self._rows.values()], limits, now, turn)

    def take(self, made: Plan, now: float) -> tuple[tuple[Row, ...], list[Item]]:
        """Takes off the rows of a plan's batch, and the inputs that expire; returns both."""
        keys, until = list(self._rows), now + made.seconds
        late = [item for i in made.expired for item in self._rows[keys[i]].items if item.waiting.deadline <= until]
        return tuple(self._rows.pop(keys[i]) for i in made.batch), late

    def begins(self, rows: Iterable[Row], now: float) -> None:
        """Takes in that a batch begins which was planned or taken last, for whose lanes take turns."""
        batch = [row.waiting for row in rows]
        bulk = sum(each.tokens for each in batch if each.bulk)
        waits = any(row.waiting.bulk for row in self._rows.values())
        interactive = sum(each.tokens for each in batch) - bulk
        self._turns.took(interactive, bulk, led=self.bulk_leads and bulk > 0, waits=waits, now=now)

    def hold(self, ready: Batch, planned: float, *, bulk_led: bool) -> None:
        """Holds a batch ready; says when it was planned, and whether it was bulk's turn."""
        self.ready, self._planned, self._bulk_led = ready, planned, bulk_led

    def take_ready(self) -> Batch | None:
        """Returns the batch that is held ready. If bulk in it would hold up what came since, it is put back instead."""
        ready, self.ready = self.ready, None
        if ready is None:
            return None
        outranked = any(row.waiting.bulk for row in ready.rows) and any(
            row.items[-1].shelved > self._planned and not row.waiting.bulk for row in self._rows.values()
        )
        if outranked and not self._bulk_led:
            self._put_back(ready.rows)
            return None
        self.bulk_leads = self._bulk_led
        return ready

    def _put_back(self, rows: Iterable[Row]) -> None:
        """Puts rows back to where they were, before all that came since."""
        since, self._rows = self._rows, {row.items[0].content: row for row in rows}
        for key, row in since.items():
            if key in self._rows:
                self._rows[key].items += row.items
            else:
                self._rows[key] = row
        self.sweep()

    def sweep(self) -> None:
        """Removes the inputs of entries that have ended."""
        for key, row in list(self._rows.items()):
            if any(item.work.over for item in row.items):
                row.items = [item for item in row.items if not item.work.over]
                if not row.items:
                    del self._rows[key]
