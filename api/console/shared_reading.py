"""Answers that any number of viewers share: one read is for all of them, and is repeated when it is old."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from shared.process.tasks import cancel_and_wait

KeyT = TypeVar("KeyT")
AnswerT = TypeVar("AnswerT")


class _Read(NamedTuple, Generic[AnswerT]):
    """A read that runs or has ended, and when it began."""

    task: asyncio.Task[AnswerT]
    began: float


class KeyedReading(Generic[KeyT, AnswerT]):
    """Reads the answer of each key at most once in `fresh_s`, and one at a time.

    Args:
        read: returns the answer of a key.
        fresh_s: an answer that is younger than this is returned again.
        max_answers: maximum number of answers that are kept, beside those that are being read.
        clock: monotonic, s.
    """

    def __init__(
        self,
        read: Callable[[KeyT], Awaitable[AnswerT]],
        fresh_s: float,
        max_answers: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._fresh_s, self._max_answers, self._clock = read, fresh_s, max_answers, clock
        self._reads: dict[KeyT, _Read[AnswerT]] = {}
        self._running: set[asyncio.Task[AnswerT]] = set()  # also those that are forgotten

    async def get(self, key: KeyT) -> tuple[AnswerT, float]:
        """Returns the answer of a key, and the time at which its read began. Raises what `read` does."""
        self._drop_old()
        if key not in self._reads:
            task = asyncio.create_task(self._run(key), name="shared reading")
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            self._reads[key] = _Read(task, self._clock())
        task, began = self._reads[key]
        return await asyncio.shield(task), began  # a viewer that leaves does not end it for others

    def forget(self, key: KeyT) -> None:
        """Has the answer of a key read again, also while it is being read."""
        self._reads.pop(key, None)

    async def stop(self) -> None:
        """Ends the reads that are under way."""
        await cancel_and_wait(list(self._running))

    def _drop_old(self) -> None:
        """Drops answers that are old, and the oldest of too many."""
        now = self._clock()
        ended = [key for key, each in self._reads.items() if each.task.done()]  # oldest first
        num_more = len(ended) - self._max_answers
        for number, key in enumerate(ended):
            if number < num_more or now - self._reads[key].began >= self._fresh_s:
                del self._reads[key]

    async def _run(self, key: KeyT) -> AnswerT:
        return await self._read(key)


class SharedReading:
    """Reads one answer at most once in `fresh_s`, and one at a time.

    Args:
        read: returns an object as JSON, which is not empty.
        fresh_s: an answer that is younger than this is returned again.
        clock: monotonic, s.
    """

    def __init__(
        self, read: Callable[[], Awaitable[str]], fresh_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        async def read_rest(_key: None) -> str:
            return (await read())[1:]  # without the opening brace

        self._reading, self._clock = KeyedReading(read_rest, fresh_s, 1, clock), clock

    async def as_json(self) -> bytes:
        """Returns the object with its age, `age_s`, as the first field. Raises what `read` does."""
        rest_of_json, began = await self._reading.get(None)
        age_s = round(self._clock() - began, 3)
        return f'{{"age_s": {age_s}, {rest_of_json}'.encode()

    async def stop(self) -> None:
        """Ends a read that is under way."""
        await self._reading.stop()
