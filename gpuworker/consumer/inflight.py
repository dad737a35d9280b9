"""What a worker has claimed and not yet committed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

from gpuworker.policy.credits import Held
from shared.keys import LANES
from shared.messages import EMBED, PLAIN, Entry, Input, Options


def key_of(entry: Entry) -> str:
    """Names an entry within its queue: its lane and its stream id."""
    return f"{entry.ref.lane}/{entry.ref.entry_id.decode()}"


@dataclass(slots=True)
class Holding:
    """One entry in this worker's hands, and what its body asks for. `answered` ones wait for their commit alone.

    `began` is when its run began (monotonic clock), None before that and between two parts of it; `runs` counts those
    that have begun and not paused.
    """

    entry: Entry
    inputs: tuple[Input, ...]
    options: Options = PLAIN
    op: str = EMBED
    began: float | None = None
    runs: int = 0
    answered: bool = False


class Hands:
    """All entries that this worker holds, by key."""

    def __init__(self) -> None:
        self._by_key: dict[str, Holding] = {}
        self._entries = [0] * len(LANES)
        self._tokens = [0] * len(LANES)
        self.freed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def get(self, key: str) -> Holding | None:
        """Returns what is held under a key."""
        return self._by_key.get(key)

    def all(self) -> list[Holding]:
        """Returns everything held."""
        return list(self._by_key.values())

    def take(self, entry: Entry, inputs: tuple[Input, ...]) -> Holding:
        """Takes an entry in hand."""
        holding = Holding(entry, inputs)
        self._by_key[key_of(entry)] = holding
        self._entries[entry.ref.lane] += 1
        self._tokens[entry.ref.lane] += entry.ref.cost
        return holding

    def release(self, keys: Iterable[str]) -> None:
        """Lets go of entries: they were committed, handed back, or are another worker's."""
        for key in keys:
            holding = self._by_key.pop(key, None)
            if holding is not None:
                self._entries[holding.entry.ref.lane] -= 1
                self._tokens[holding.entry.ref.lane] -= holding.entry.ref.cost
        self.freed.set()

    async def emptied(self, timeout_s: float) -> bool:
        """Waits until nothing is held; returns whether that came true in time."""
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                while self._by_key:
                    self.freed.clear()
                    await self.freed.wait()
        except TimeoutError:
            return False
        return True

    def begin(self, keys: Iterable[str]) -> None:
        """Marks entries as begun."""
        for key in keys:
            holding = self._by_key.get(key)
            if holding is not None:
                holding.began = time.monotonic()
                holding.runs += 1

    def pause(self, keys: Iterable[str]) -> None:
        """Marks entries of which nothing runs just now: they are neither accused nor timed.

        That the next part of one has begun may be told before.
        """
        for key in keys:
            holding = self._by_key.get(key)
            if holding is not None:
                holding.runs -= 1
                if holding.runs <= 0:
                    holding.began, holding.runs = None, 0

    def running(self) -> list[Entry]:
        """Returns the entries that have begun and are not answered."""
        return [each.entry for each in self._by_key.values() if each.began is not None and not each.answered]

    def oldest_run(self) -> float | None:
        """Returns when the run began that has lasted longest and is not answered; None if nothing runs."""
        runs = [each.began for each in self._by_key.values() if each.began is not None and not each.answered]
        return min(runs, default=None)

    def interrupt(self) -> None:
        """Counts an attempt for each entry that was begun and not answered when the engine died."""
        for holding in self._by_key.values():
            if holding.began is not None and not holding.answered:
                holding.entry = holding.entry._replace(attempts=holding.entry.attempts + 1)
                holding.began, holding.runs = None, 0

    def forgive(self) -> None:
        """Accuses nobody: that the engine ends has nothing to do with what it runs."""
        for holding in self._by_key.values():
            holding.began, holding.runs = None, 0

    def unanswered(self) -> list[Holding]:
        """Returns what is still to run. An entry without inputs was not understood and is on its way to others."""
        return [each for each in self._by_key.values() if each.inputs and not each.answered]

    def held(self, lane: int) -> Held:
        """How much is held of this lane and of those before it."""
        return Held(sum(self._entries[: lane + 1]), sum(self._tokens[: lane + 1]))
