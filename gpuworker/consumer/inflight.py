"""The entries that a worker has claimed and not yet committed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gpuworker.policy.credits import HeldLoad
from shared.keys import INTERACTIVE, LANES
from shared.long_entries import is_long
from shared.messages import DEFAULT_OPTIONS, EMBED, Entry, Input, Options


def key_of(entry: Entry) -> str:
    """Returns the name of an entry within its queue: its lane and its stream id."""
    return f"{entry.ref.lane}/{entry.ref.entry_id.decode()}"


class Hang(NamedTuple):
    """How long a run went on that hung, and the limit at which its engine was killed, s."""

    ran_s: float
    limit_s: float


@dataclass(slots=True)
class InFlightEntry:
    """An entry that this worker holds, and the content of its body.

    Attributes:
        entry: as claimed.
        inputs: of its body; empty if the body was not understood.
        options: of its body.
        op: the operation that its body requests.
        started_at: when its run began (monotonic clock), s; None before that and between two parts of it.
        num_running: how many of its parts have started and not paused.
        answered: whether it only waits for its commit.
        counted_tokens: how many tokens it counts as in the load.
        hang: what ended its last run, if the engine was killed as hung.
    """

    entry: Entry
    inputs: tuple[Input, ...]
    options: Options = DEFAULT_OPTIONS
    op: str = EMBED
    started_at: float | None = None
    num_running: int = 0
    answered: bool = False
    counted_tokens: int = 0
    hang: Hang | None = None


class InFlightEntries:
    """All entries that this worker holds, by key.

    Attributes:
        capacity_freed: set when some were removed.
        max_counted_tokens: maximum tokens that an interactive entry counts as in the load: those that make it long (see
            policy.credits and policy.short_first). Short inputs of bulk do not go first: its entries count in full.
    """

    def __init__(self) -> None:
        self._by_key: dict[str, InFlightEntry] = {}
        self._num_entries = [0] * len(LANES)
        self._num_tokens = [0] * len(LANES)
        self._num_inputs = [0] * len(LANES)
        self._num_counted_tokens = [0] * len(LANES)
        self.capacity_freed = asyncio.Event()
        self.max_counted_tokens = sys.maxsize

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def get(self, key: str) -> InFlightEntry | None:
        """Returns the entry of a key, or None."""
        return self._by_key.get(key)

    def entries(self) -> list[InFlightEntry]:
        """Returns all entries."""
        return list(self._by_key.values())

    def add(self, entry: Entry, inputs: tuple[Input, ...]) -> InFlightEntry:
        """Adds an entry."""
        max_tokens = self.max_counted_tokens if entry.ref.lane == INTERACTIVE else sys.maxsize
        in_flight_entry = InFlightEntry(entry, inputs, counted_tokens=min(entry.ref.cost, max_tokens))
        self._by_key[key_of(entry)] = in_flight_entry
        self._count(in_flight_entry, 1)
        return in_flight_entry

    def remove(self, keys: Iterable[str]) -> None:
        """Removes entries: they were committed, handed back, or belong to another worker."""
        for key in keys:
            in_flight_entry = self._by_key.pop(key, None)
            if in_flight_entry is not None:
                self._count(in_flight_entry, -1)
        self.capacity_freed.set()

    async def wait_until_empty(self, timeout_s: float) -> bool:
        """Waits until no entry is held; returns whether that happened in time."""
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                while self._by_key:
                    self.capacity_freed.clear()
                    await self.capacity_freed.wait()
        except TimeoutError:
            return False
        return True

    def mark_started(self, keys: Iterable[str]) -> None:
        """Marks entries of which a part has started."""
        for key in keys:
            in_flight_entry = self._by_key.get(key)
            if in_flight_entry is not None:
                in_flight_entry.started_at, in_flight_entry.hang = time.monotonic(), None
                in_flight_entry.num_running += 1

    def mark_paused(self, keys: Iterable[str]) -> None:
        """Marks entries of which a part has ended without an answer: with no part running, none is accused or timed.

        The start of the next part may be reported before.
        """
        for key in keys:
            in_flight_entry = self._by_key.get(key)
            if in_flight_entry is not None:
                in_flight_entry.num_running -= 1
                if in_flight_entry.num_running <= 0:
                    in_flight_entry.started_at, in_flight_entry.num_running = None, 0

    def mark_hung(self, now: float, limit_s: float) -> None:
        """Notes how long the entries have run in an engine that is killed because it hangs."""
        for each in self._by_key.values():
            if each.started_at is not None and not each.answered:
                each.hang = Hang(now - each.started_at, limit_s)

    def running_entries(self) -> list[Entry]:
        """Returns the entries that have started and are not answered."""
        return [each.entry for each in self._by_key.values() if each.started_at is not None and not each.answered]

    def oldest_start(self) -> float | None:
        """Returns the earliest start of the runs that are not answered; None if there is none."""
        starts = [
            each.started_at for each in self._by_key.values() if each.started_at is not None and not each.answered
        ]
        return min(starts, default=None)

    def count_attempts(self) -> None:
        """Counts an attempt for each entry that had started and was not answered when the engine died."""
        for in_flight_entry in self._by_key.values():
            if in_flight_entry.started_at is not None and not in_flight_entry.answered:
                in_flight_entry.entry = in_flight_entry.entry._replace(attempts=in_flight_entry.entry.attempts + 1)
                in_flight_entry.started_at, in_flight_entry.num_running = None, 0

    def clear_runs(self) -> None:
        """Forgets all starts without counting an attempt: the engine ends for a reason other than its inputs."""
        for in_flight_entry in self._by_key.values():
            in_flight_entry.started_at, in_flight_entry.num_running = None, 0

    def withdraw_waiting(self) -> list[Entry]:
        """Returns the entries that have not started, to hand them back: a result that is on its way comes too late."""
        waiting = [each for each in self.unanswered() if each.started_at is None]
        for each in waiting:
            each.answered = True
        return [each.entry for each in waiting]

    def unanswered(self) -> list[InFlightEntry]:
        """Returns the entries still to run. One without inputs was not understood and is being handed back."""
        return [each for each in self._by_key.values() if each.inputs and not each.answered]

    def held_load(self, lane: int) -> HeldLoad:
        """Returns how much is held of this lane and of those before it."""
        counts = (self._num_entries, self._num_tokens, self._num_inputs, self._num_counted_tokens)
        return HeldLoad(*(sum(by_lane[: lane + 1]) for by_lane in counts))

    def long_tokens(self, max_batch_size: int) -> int:
        """Returns the tokens of long interactive entries that are not answered: short ones need not wait for them."""
        refs = [each.entry.ref for each in self._by_key.values() if not each.answered]
        return sum(
            ref.cost
            for ref in refs
            if ref.lane == INTERACTIVE and is_long(ref.cost, ref.n, self.max_counted_tokens, max_batch_size)
        )

    def _count(self, in_flight_entry: InFlightEntry, sign: int) -> None:
        ref = in_flight_entry.entry.ref
        self._num_entries[ref.lane] += sign
        self._num_tokens[ref.lane] += sign * ref.cost
        self._num_inputs[ref.lane] += sign * ref.n
        self._num_counted_tokens[ref.lane] += sign * in_flight_entry.counted_tokens
