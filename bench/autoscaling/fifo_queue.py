"""A queue of many, first come, first served: those who came together are kept together, by their number."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Group(NamedTuple):
    """So many who came evenly over a span of time."""

    begin_s: float
    span_s: float
    number: int

    @property
    def came_s(self) -> float:
        """When they came, in the middle."""
        return self.begin_s + self.span_s / 2

    def split(self, number: int) -> tuple[Group, Group]:
        """Returns the first so many of them, and the others."""
        span_s = self.span_s * number / self.number
        rest = Group(self.begin_s + span_s, self.span_s - span_s, self.number - number)
        return Group(self.begin_s, span_s, number), rest


class Served(NamedTuple):
    """Some who were served, and how long after they came their turn was, in the middle."""

    group: Group
    waited_s: float


class Line:
    """A line before a server that takes so many a second, evenly. `number` is how many stand in it."""

    def __init__(self) -> None:
        self._groups: deque[Group] = deque()
        self._unused = 0.0
        self.number = 0

    def join(self, group: Group) -> None:
        """Adds some behind all others."""
        if group.number:
            self._groups.append(group)
            self.number += group.number

    def serve(self, now: float, span_s: float, per_s: float) -> list[Served]:
        """Serves, over the span that begins now, as many as it can."""
        can = per_s * span_s + self._unused
        served: list[Served] = []
        begun = 0
        while self._groups and begun + 1 <= can:
            group = self._groups.popleft()
            number = min(group.number, int(can - begun))
            if number < group.number:
                group, rest = group.split(number)
                self._groups.appendleft(rest)
            turn_s = now + (begun + number / 2) / per_s
            served.append(Served(group, max(0.0, turn_s - group.came_s)))
            begun += number
        self.number -= begun
        self._unused = can - begun if self._groups else 0.0
        return served

    def expire(self, before_s: float) -> int:
        """Takes out those who came before a time; returns how many."""
        gone = 0
        while self._groups and self._groups[0].came_s < before_s:
            gone += self._groups.popleft().number
        self.number -= gone
        return gone
