"""An answer that any number of viewers share: one read is for all of them, and is repeated when it is old."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import inf
from typing import NamedTuple

from shared.process.tasks import cancel_and_wait


class _Reading(NamedTuple):
    """JSON without the opening brace, and when its read began."""

    rest_of_json: str
    began: float


class SharedReading:
    """Reads at most once in `fresh_s`, and one read at a time.

    Args:
        read: returns an object as JSON, which is not empty.
        fresh_s: an answer that is younger than this is returned again.
        clock: monotonic, s.
    """

    def __init__(
        self, read: Callable[[], Awaitable[str]], fresh_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._fresh_s, self._clock = read, fresh_s, clock
        self._reading: asyncio.Task[_Reading] | None = None
        self._began = -inf

    async def as_json(self) -> bytes:
        """Returns the object with its age, `age_s`, as the first field. Raises what `read` does."""
        if self._reading is None or self._is_over(self._reading):
            self._began = self._clock()
            self._reading = asyncio.create_task(self._run(), name="shared reading")
        reading = await asyncio.shield(self._reading)  # a viewer that leaves does not end it for others
        age_s = round(self._clock() - reading.began, 3)
        return f'{{"age_s": {age_s}, {reading.rest_of_json}'.encode()

    async def stop(self) -> None:
        """Ends a read that is under way."""
        await cancel_and_wait([] if self._reading is None else [self._reading])

    def _is_over(self, reading: asyncio.Task[_Reading]) -> bool:
        """Whether a read has ended, and its answer is not fresh any more."""
        return reading.done() and self._clock() - self._began >= self._fresh_s

    async def _run(self) -> _Reading:
        began = self._clock()
        return _Reading((await self._read())[1:], began)
