"""The requests of a connection whose heads have arrived and that are not answered: one runs, others wait behind it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope

    from api.http.answer_cycle import AnswerCycle


class UnansweredRequests:
    """The requests, in order.

    Attributes:
        num_bytes: that they hold: their heads, and the bodies of those that wait; a small head alone counts 0.
    """

    def __init__(self) -> None:
        self.num_bytes = 0
        self._cycles: deque[AnswerCycle] = deque()

    @property
    def running_scope(self) -> Scope | None:
        """The scope of the request that is being answered; None if there is none."""
        return self._cycles[0].scope if self._cycles else None  # type: ignore[return-value]  # uvicorn's own type of it

    def __len__(self) -> int:
        return len(self._cycles)

    @property
    def last(self) -> AnswerCycle | None:
        """What answers the last request; None if there is none."""
        return self._cycles[-1] if self._cycles else None

    def add(self, cycle: AnswerCycle, num_bytes: int) -> None:
        """The head of a further request has arrived, of a size; `cycle` answers it."""
        self._cycles.append(cycle)
        cycle.held_bytes = num_bytes
        self.num_bytes += num_bytes

    def add_body(self, num_bytes: int) -> None:
        """A part of the last request's body has arrived while the request waits."""
        self._cycles[-1].held_bytes += num_bytes
        self.num_bytes += num_bytes

    def remove_first(self) -> AnswerCycle:
        """The first request is answered; returns what has answered it."""
        answered = self._cycles.popleft()
        self.num_bytes -= answered.held_bytes
        return answered

    def remove_last(self) -> None:
        """The last request will not be answered."""
        self.num_bytes -= self._cycles.pop().held_bytes

    def disconnect(self) -> None:
        """Tells the running request that its client has left. uvicorn tells the last one only, which may be waiting."""
        if self._cycles:
            self._cycles[0].disconnected = True
            self._cycles[0].message_event.set()
            self._cycles.clear()
