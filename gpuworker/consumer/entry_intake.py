"""Adds claimed entries to those in flight, and sends them to the engine."""

from __future__ import annotations

import time
from collections.abc import Iterable

from gpuworker.consumer.committer import Committer
from gpuworker.consumer.inflight import InFlightEntry, key_of
from gpuworker.consumer.worker_state import ShardState
from gpuworker.ipc.engine_process import EngineProcess
from gpuworker.ipc.messages import AddEntries, EngineEntry
from gpuworker.policy.retries import RetryDecision, decide_retry
from shared.codec import CodecError, decode_body
from shared.errors import DeadlineExceededError, InputFailedError, InternalError
from shared.keys import INTERACTIVE
from shared.messages import DEFAULT_OPTIONS, OPS, VERSION, Entry, FailureOrigin, Ref

FRAME_ENTRIES = 16
"""Entries in a frame. With the limit of an entry's body, this keeps a frame within its own limit."""

DEADLINE_MESSAGE = "The deadline passed while the request waited."
GIVEN_UP_MESSAGE = "The engine died each time that it ran this input: the workers' logs say more."
HUNG_MESSAGE = (
    "The model hangs: a batch with this input ran for {ran_s:.1f} s, until a limit of {limit_s:.1f} s ended it. "
    "If an input may take that long, raise engine_hang_s, the minimum of this limit."
)


class EntryIntake:
    """Takes the entries of a shard that the claimer and the reclaimer bring.

    Args:
        shard: of the entries.
        engine: runs the entries.
        committer: answers the entries that are not to run.
    """

    def __init__(self, shard: ShardState, engine: EngineProcess, committer: Committer) -> None:
        self._shard, self._worker_state = shard, shard.worker_state
        self._engine = engine
        self._committer = committer

    def submitted_at(self, entry: Entry) -> float:
        """Returns when an entry was submitted, on this host's monotonic clock."""
        return self._shard.clock.to_monotonic(int(entry.ref.entry_id.split(b"-")[0]))

    def is_in_flight(self, entry: Entry) -> bool:
        """Returns whether this worker holds an entry already."""
        return key_of(entry, self._shard.number) in self._worker_state.in_flight

    def accept(self, claimed: Iterable[Entry | Ref]) -> None:
        """Adds claimed entries to those in flight, and sends them to the engine; discards malformed ones."""
        accepted = []
        for each in claimed:
            if isinstance(each, Ref):
                self._committer.discard(each)
            elif not self.is_in_flight(each):
                in_flight_entry = self._admit(each)
                if in_flight_entry is not None:
                    accepted.append(in_flight_entry)
        self.send_to_engine(accepted)

    def _admit(self, entry: Entry) -> InFlightEntry | None:
        """Returns the in-flight entry if it is to run; otherwise has it answered, or hands it back to other workers."""
        in_flight_entry = self._worker_state.in_flight.add(entry, self._shard.number, (), self.submitted_at(entry))
        if self._shard.clock.to_monotonic(entry.deadline_ms) <= time.monotonic():
            origin = FailureOrigin(unrun=not entry.attempts)
            self._committer.fail(in_flight_entry, DeadlineExceededError.code, DEADLINE_MESSAGE, origin=origin)
        elif entry.revision not in ("", self._worker_state.revision) or self._worker_state.standby or self._is_open():
            self._committer.hand_back([entry])
        elif entry.version != VERSION:
            self._committer.refuse(entry)
        else:
            return self._decode(in_flight_entry)
        return None

    def _is_open(self) -> bool:
        """Whether the circuit is open, or the entry that it tries is held already: the last one was just added."""
        num_held = self._worker_state.in_flight.num_held(self._shard.number)
        return self._worker_state.circuit.max_entries(time.monotonic(), num_held - 1) == 0

    def _decode(self, in_flight_entry: InFlightEntry) -> InFlightEntry | None:
        """Decodes the body of an entry; returns None if it cannot run, which is then answered or refused."""
        entry = in_flight_entry.entry
        try:
            body = decode_body(entry.body)
        except CodecError:
            self._committer.fail(in_flight_entry, InternalError.code, "The entry's body does not match its version.")
            return None
        if body.op not in OPS:
            self._committer.refuse(entry)
            return None
        if len(body.inputs) != entry.ref.n:
            self._committer.fail(
                in_flight_entry,
                InternalError.code,
                "The number of inputs in the entry's body differs from the one that the entry states.",
            )
            return None
        in_flight_entry.inputs, in_flight_entry.options, in_flight_entry.op = body.inputs, body.options, body.op
        if entry.ref.counted_bytes:
            in_flight_entry.entry = entry._replace(body=b"")  # its inputs may be long: keep them once
        return in_flight_entry

    def send_to_engine(self, in_flight_entries: Iterable[InFlightEntry]) -> None:
        """Sends entries to the engine; gives up those that have begun too often."""
        clock, max_attempts = self._shard.clock, self._worker_state.settings.retries.max_attempts
        entries = []
        for in_flight_entry in in_flight_entries:
            entry = in_flight_entry.entry
            if clock.to_monotonic(entry.deadline_ms) <= time.monotonic():
                message = _hung_message(in_flight_entry) or DEADLINE_MESSAGE
                origin = FailureOrigin(unrun=not entry.attempts)
                self._committer.fail(in_flight_entry, DeadlineExceededError.code, message, origin=origin)
                continue
            decision = decide_retry(entry.attempts, max_attempts if entry.num_coalesced == 1 else 1)
            if decision is RetryDecision.GIVE_UP:
                message = _hung_message(in_flight_entry) or GIVEN_UP_MESSAGE
                self._committer.fail(in_flight_entry, InputFailedError.code, message, dead_after=entry.attempts)
                continue
            suspect = decision is RetryDecision.ISOLATED
            entries.append(
                # By position: names would take twice the time.
                EngineEntry(
                    in_flight_entry.key,
                    in_flight_entry.op,
                    in_flight_entry.inputs,
                    None if in_flight_entry.options == DEFAULT_OPTIONS else in_flight_entry.options,
                    # For a suspect, the bounds on how long an input is passed over count from when it came back.
                    time.monotonic() if suspect else in_flight_entry.submitted,
                    clock.to_monotonic(entry.deadline_ms),
                    entry.attempts if suspect else 0,
                    entry.ref.lane != INTERACTIVE,
                    in_flight_entry.slot,
                    entry.ref.cost,
                )
            )
        for start in range(0, len(entries), FRAME_ENTRIES):
            self._engine.send(AddEntries(tuple(entries[start : start + FRAME_ENTRIES])))


def _hung_message(in_flight_entry: InFlightEntry) -> str:
    """Returns that the last run of an entry hung; empty if it did not."""
    hang = in_flight_entry.hang
    return "" if hang is None else HUNG_MESSAGE.format(ran_s=hang.ran_s, limit_s=hang.limit_s)
