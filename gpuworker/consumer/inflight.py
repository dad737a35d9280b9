"""The entries that a worker has claimed and not yet committed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gpuworker.ipc.run_table import RunTable, Slots
from gpuworker.policy.credits import HeldLoad
from shared.keys import INTERACTIVE, LANES
from shared.long_entries import is_long
from shared.messages import DEFAULT_OPTIONS, EMBED, Entry, Input, Options


def key_of(entry: Entry, shard: int) -> str:
    """Returns the name of an entry within its worker: its shard, its lane and its stream id.

    Two Redis may give the same stream id.
    """
    return f"{shard}/{entry.ref.lane}/{entry.ref.entry_id.decode()}"


def shard_of(key: str) -> int:
    """Returns the number of the shard of an entry."""
    return int(key.partition("/")[0])


class Hang(NamedTuple):
    """When a run began that hung (monotonic clock), how long it went on, and the limit at which it was ended, s."""

    started_at: float
    ran_s: float
    limit_s: float


@dataclass(slots=True)
class InFlightEntry:
    """An entry that this worker holds, and the content of its body.

    Attributes:
        entry: as claimed.
        shard: the number of the shard that has it.
        inputs: of its body; empty if the body was not understood.
        options: of its body.
        op: the operation that its body requests.
        slot: in the run table.
        key: see key_of.
        submitted: when the entry was submitted, on this host's monotonic clock.
        answered: whether it only waits for its commit.
        counted_tokens: how many tokens it counts as in the load.
        hang: what ended its last run, if the engine was killed as hung.
    """

    entry: Entry
    shard: int
    inputs: tuple[Input, ...]
    slot: int
    key: str
    submitted: float
    options: Options = DEFAULT_OPTIONS
    op: str = EMBED
    answered: bool = False
    counted_tokens: int = 0
    hang: Hang | None = None


class _LoadCounts:
    """The load of some entries, by lane."""

    def __init__(self) -> None:
        self.num_entries = [0] * len(LANES)
        self._num_tokens = [0] * len(LANES)
        self._num_inputs = [0] * len(LANES)
        self._num_counted_tokens = [0] * len(LANES)

    def count(self, in_flight_entry: InFlightEntry, sign: int) -> None:
        """Adds an entry, or subtracts it if the sign is -1."""
        ref = in_flight_entry.entry.ref
        self.num_entries[ref.lane] += sign
        self._num_tokens[ref.lane] += sign * ref.cost
        self._num_inputs[ref.lane] += sign * ref.n
        self._num_counted_tokens[ref.lane] += sign * in_flight_entry.counted_tokens

    def load(self, lane: int) -> HeldLoad:
        """Returns the load of a lane and of those before it."""
        counts = (self.num_entries, self._num_tokens, self._num_inputs, self._num_counted_tokens)
        return HeldLoad(*(sum(by_lane[: lane + 1]) for by_lane in counts))


class InFlightEntries:
    """All entries that this worker holds, by key.

    Args:
        num_shards: how many shards they are of.

    Attributes:
        runs: in which the engine notes what it runs.
        capacity_freed: for each shard, set when some were removed.
        max_counted_tokens: maximum tokens that an interactive entry counts as in the load: those that make it long (see
            policy.credits and policy.short_first). Short inputs of bulk do not go first: its entries count in full.
    """

    def __init__(self, num_shards: int = 1) -> None:
        self.runs = RunTable()
        self._slots = Slots()
        self._by_key: dict[str, InFlightEntry] = {}
        self._held = [_LoadCounts() for _ in range(num_shards)]
        self._answered = [_LoadCounts() for _ in range(num_shards)] if num_shards > 1 else []
        self.capacity_freed = [asyncio.Event() for _ in range(num_shards)]
        self._emptied = asyncio.Event()
        self._watchers: dict[int, tuple[Callable[[], None], Callable[[], None]]] = {}
        self.max_counted_tokens = sys.maxsize

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def watch(self, shard: int, on_first: Callable[[], None], on_empty: Callable[[], None]) -> None:
        """Has one function called when the first entry of a shard is held, and the other when none is held any more."""
        self._watchers[shard] = (on_first, on_empty)

    def get(self, key: str) -> InFlightEntry | None:
        """Returns the entry of a key, or None."""
        return self._by_key.get(key)

    def entries(self, shard: int | None = None) -> list[InFlightEntry]:
        """Returns all entries, or those of a shard."""
        return [each for each in self._by_key.values() if shard is None or each.shard == shard]

    def add(self, entry: Entry, shard: int, inputs: tuple[Input, ...], submitted: float = 0.0) -> InFlightEntry:
        """Adds an entry, with the time of its submit on this host's monotonic clock."""
        key = key_of(entry, shard)
        max_tokens = self.max_counted_tokens if entry.ref.lane == INTERACTIVE else sys.maxsize
        in_flight_entry = InFlightEntry(
            entry, shard, inputs, self._slots.take(), key, submitted, counted_tokens=min(entry.ref.cost, max_tokens)
        )
        self._by_key[key] = in_flight_entry
        self._held[shard].count(in_flight_entry, 1)
        if shard in self._watchers and self.num_of(shard) == 1:
            self._watchers[shard][0]()
        return in_flight_entry

    def mark_answered(self, in_flight_entry: InFlightEntry) -> None:
        """Notes that an entry only waits for its commit, or to be handed back."""
        if self._answered and not in_flight_entry.answered:
            self._answered[in_flight_entry.shard].count(in_flight_entry, 1)
        in_flight_entry.answered = True

    def remove(self, keys: Iterable[str]) -> None:
        """Removes entries: they were committed, handed back, or belong to another worker."""
        for key in keys:
            in_flight_entry = self._by_key.pop(key, None)
            if in_flight_entry is not None:
                self._held[in_flight_entry.shard].count(in_flight_entry, -1)
                if self._answered and in_flight_entry.answered:
                    self._answered[in_flight_entry.shard].count(in_flight_entry, -1)
                self._slots.free(in_flight_entry.slot)
                if in_flight_entry.shard in self._watchers and not self.num_of(in_flight_entry.shard):
                    self._watchers[in_flight_entry.shard][1]()
        if not self._by_key:
            self._emptied.set()
        self.wake_claimers()

    def wake_claimers(self) -> None:
        """Has the claimers of all shards look again whether they may claim."""
        for event in self.capacity_freed:
            event.set()

    async def wait_until_empty(self, timeout_s: float) -> bool:
        """Waits until no entry is held; returns whether that happened in time."""
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                while self._by_key:
                    self._emptied.clear()
                    await self._emptied.wait()
        except TimeoutError:
            return False
        return True

    def started_at(self, in_flight_entry: InFlightEntry) -> float | None:
        """Returns since when an entry runs (monotonic clock); None before that, and between two parts of it."""
        return self.runs.started_at(in_flight_entry.slot)

    def running(self, shard: int | None = None) -> list[tuple[InFlightEntry, float]]:
        """Returns the entries that run and are not answered, and since when (monotonic clock); of a shard, or all."""
        starts = [(each, self.runs.started_at(each.slot)) for each in self.entries(shard) if not each.answered]
        return [(each, started_at) for each, started_at in starts if started_at is not None]

    def mark_hung(self, now: float, limit_s: float) -> None:
        """Notes how long the entries have run in an engine that is killed because it hangs."""
        for each, started_at in self.running():
            each.hang = Hang(started_at, now - started_at, limit_s)

    def count_attempts(self) -> None:
        """Counts an attempt for each entry that ran and was not answered when the engine died."""
        for each, started_at in self.running():
            each.entry = each.entry._replace(attempts=each.entry.attempts + 1)
            if each.hang is not None and each.hang.started_at != started_at:
                each.hang = None  # it was an earlier run that hung
        self.runs.clear()

    def clear_runs(self) -> None:
        """Forgets all runs without counting an attempt: the engine ends for a reason other than its inputs."""
        self.runs.clear()

    def withdraw_waiting(self) -> list[InFlightEntry]:
        """Returns the entries that do not run, to hand them back: a result that is on its way comes too late."""
        waiting = [each for each in self.unanswered() if self.started_at(each) is None]
        for each in waiting:
            self.mark_answered(each)
        return waiting

    def unanswered(self, shard: int | None = None) -> list[InFlightEntry]:
        """Returns the entries still to run, of a shard or all.

        One without inputs was not understood and is being handed back.
        """
        return [each for each in self.entries(shard) if each.inputs and not each.answered]

    def held_load(self, lane: int, shard: int) -> HeldLoad:
        """Returns the load that counts for a claim from a shard: what is held of this lane and of those before it.

        Answers that wait for the Redis of another shard do not count: that may be away.
        """
        load = self._held[shard].load(lane)
        for number, answered in enumerate(self._answered):
            if number != shard:
                held = self._held[number].load(lane)
                load = HeldLoad(*(a + b - c for a, b, c in zip(load, held, answered.load(lane), strict=True)))
        return load

    def num_held(self, shard: int) -> int:
        """Returns how many entries count for a claim from a shard: see `held_load`."""
        answered = [sum(each.num_entries) for number, each in enumerate(self._answered) if number != shard]
        return len(self._by_key) - sum(answered)

    def num_entries(self, shard: int, lane: int) -> int:
        """Returns how many entries are held of a lane of a shard."""
        return self._held[shard].num_entries[lane]

    def num_of(self, shard: int) -> int:
        """Returns how many entries are held of a shard."""
        return sum(self._held[shard].num_entries)

    def long_tokens(self, max_batch_size: int, shard: int) -> int:
        """Returns the tokens of long interactive entries of a shard that are not answered.

        Short ones need not wait for them.
        """
        refs = [each.entry.ref for each in self.entries(shard) if not each.answered]
        return sum(
            ref.cost
            for ref in refs
            if ref.lane == INTERACTIVE and is_long(ref.cost, ref.n, self.max_counted_tokens, max_batch_size)
        )
