"""The tokenized inputs that wait for a batch. Identical texts stand there as one, and are computed once."""

from __future__ import annotations

from collections.abc import Iterable

from gpuworker.batching import Device, Limits, Plan, plan
from gpuworker.engine.work import Item, Row


class Shelf:
    """What waits, in the order of arrival. It has no lock of its own."""

    def __init__(self) -> None:
        self._rows: dict[object, Row] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    @property
    def tokens(self) -> int:
        """Tokens of all rows, without padding."""
        return sum(row.encoded.tokens for row in self._rows.values())

    def add(self, items: Iterable[Item]) -> None:
        """Puts inputs on the shelf, each beside those with the same text. A suspect joins nobody."""
        for item in items:
            key: object = (item.work.key, item.index) if item.waiting.suspect else item.text
            row = self._rows.get(key)
            if row is None:
                self._rows[key] = Row([item])
            else:
                row.items.append(item)

    def plan(self, limits: Limits, now: float, device: Device) -> Plan:
        """Returns what to do now; its indices are rows."""
        return plan([row.waiting for row in self._rows.values()], limits, now, device)

    def take(self, made: Plan, now: float) -> tuple[tuple[Row, ...], list[Item]]:
        """Takes off the rows of a plan's batch, and the inputs whose deadline has passed; returns both."""
        keys = list(self._rows)
        late = [item for i in made.expired for item in self._rows[keys[i]].items if item.waiting.deadline <= now]
        return tuple(self._rows.pop(keys[i]) for i in made.batch), late

    def sweep(self) -> None:
        """Removes the inputs of entries that have ended."""
        for key, row in list(self._rows.items()):
            if any(item.work.over for item in row.items):
                row.items = [item for item in row.items if not item.work.over]
                if not row.items:
                    del self._rows[key]
