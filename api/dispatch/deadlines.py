"""Calls back when deadlines pass: one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")

STEPS_PER_S = 100
"""An item is called back up to one step late."""


class Deadlines(Generic[Item]):
    """Items with a deadline, by the step in which it passes.

    Nearly all are removed before. A timer of uvloop's for each would take several times as long to set and cancel.

    Args:
        on_passed: called with each item whose deadline has passed.
    """

    def __init__(self, on_passed: Callable[[Item], None]) -> None:
        self._on_passed = on_passed
        self._by_step: dict[int, set[Item]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_step = 0

    def add(self, item: Item, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        """Adds an item. The deadline is on the loop's clock, s."""
        step = _step_of(deadline)
        self._by_step.setdefault(step, set()).add(item)
        if self._timer is None or step < self._next_step:
            self._set_timer(step, loop)

    def remove(self, item: Item, deadline: float) -> None:
        """Removes an item, unless it is gone."""
        step = _step_of(deadline)
        items = self._by_step.get(step)
        if items is not None:
            items.discard(item)
            if not items:
                del self._by_step[step]

    def _set_timer(self, step: int, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next_step = loop.call_at(step / STEPS_PER_S, self._end_step, step, loop), step

    def _end_step(self, step: int, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        for item in self._by_step.pop(step, ()):
            self._on_passed(item)
        if self._by_step:
            self._set_timer(min(self._by_step), loop)


def _step_of(deadline: float) -> int:
    return int(deadline * STEPS_PER_S) + 1
