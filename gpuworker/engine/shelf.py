"""The tokenized inputs that wait for a batch. Those with the same content stand there as one, and are computed once."""

from __future__ import annotations

from collections.abc import Iterable

from gpuworker.batching import Limits, Plan, Turn, plan
from gpuworker.engine.work import Item, Row
from gpuworker.lanes import Turns


class Shelf:
    """What waits, in the order of arrival. It has no lock of its own.

    Args:
        turns: how the lanes take turns here.

    Attributes:
        bulk_leads: whether it was bulk's turn at the last plan.
    """

    def __init__(self, turns: Turns) -> None:
        self._rows: dict[object, Row] = {}
        self._turns = turns
        self.bulk_leads = False

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
        self.bulk_leads = self._turns.owed(now) > 0
        turn = Turn(busy, suspect_ran, self.bulk_leads)
        return plan([row.waiting for row in self._rows.values()], limits, now, turn)

    def take(self, made: Plan, now: float) -> tuple[tuple[Row, ...], list[Item]]:
        """Takes off the rows of a plan's batch, and the inputs that expire; returns both."""
        keys, until = list(self._rows), now + made.seconds
        late = [item for i in made.expired for item in self._rows[keys[i]].items if item.waiting.deadline <= until]
        return tuple(self._rows.pop(keys[i]) for i in made.batch), late

    def begins(self, rows: Iterable[Row], now: float, *, bulk_led: bool) -> None:
        """Takes in that a batch begins, for whose lanes take turns; whether it was bulk's turn when it was planned."""
        batch = [row.waiting for row in rows]
        bulk = sum(each.tokens for each in batch if each.bulk)
        waits = any(row.waiting.bulk for row in self._rows.values())
        interactive = sum(each.tokens for each in batch) - bulk
        self._turns.took(interactive, bulk, led=bulk_led and bulk > 0, waits=waits, now=now)

    def holds_up(self, rows: Iterable[Row]) -> bool:
        """Whether a batch that has not begun has bulk in it while interactive inputs wait that came after it."""
        return any(row.waiting.bulk for row in rows) and not all(row.waiting.bulk for row in self._rows.values())

    def put_back(self, rows: Iterable[Row]) -> None:
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
