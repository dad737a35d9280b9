"""The state that the threads of a pipeline share: its entries, the inputs that wait, and what runs; under one lock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence

from gpuworker.engine.failures import late_failure_of
from gpuworker.engine.waiting_inputs import WaitingInputs
from gpuworker.engine.work import Batch, BatchRow, EntryTask, InputItem
from gpuworker.ipc.messages import EntryFailure
from gpuworker.policy.adaptive_limits import AdaptiveLimits
from gpuworker.policy.batching import Plan
from gpuworker.policy.limits import Limits
from gpuworker.policy.suspects import SuspectTurns
from shared.process.limited_log import LimitedLog


class Schedule:
    """The entries and inputs of a pipeline, and which of its threads has to wake. The caller holds `lock`.

    Args:
        limits: of a batch.
        num_runners: how many batches run at once.

    Attributes:
        lock: of everything here.
        preparer: where the preparer waits.
        leader: where the first runner waits.
        followers: where the other runners wait.
        waiting: the inputs that wait for a batch.
        adaptive_limits: of the next batch, adapted to those that ran.
        num_running: runners at work.
        leader_runs: whether the first runner is at work.
        suspect_runs: whether a suspect runs.
        last_end: when the last batch of any runner ended (monotonic clock).
    """

    def __init__(self, limits: Limits, num_runners: int) -> None:
        self._packed = limits.packed
        self._num_runners = num_runners
        self.lock = threading.Lock()
        self.preparer = threading.Condition(self.lock)
        self.leader = threading.Condition(self.lock)
        self.followers = threading.Condition(self.lock)
        self.waiting = WaitingInputs(limits, num_runners)
        self.adaptive_limits = AdaptiveLimits(limits, num_runners)
        self.num_running, self.last_end = 0, 0.0
        self.leader_runs = self.suspect_runs = False
        self._tasks: dict[str, EntryTask] = {}
        self._running_tokens, self._suspect_turns = 0, SuspectTurns()
        self._log = LimitedLog()

    # -- entries and inputs -------------------------------------------------------------------------------------------

    def add_tasks(self, tasks: Iterable[EntryTask]) -> None:
        """Adds entries, before they are tokenized."""
        self._tasks.update((task.key, task) for task in tasks)

    def add_items(self, items: Iterable[InputItem]) -> None:
        """Adds tokenized inputs, except those of entries that have ended meanwhile."""
        live = [item for item in items if not item.task.closed]
        self.waiting.add(live)
        self.adaptive_limits.record_arrivals(time.monotonic(), len(live))
        self.wake_runner()
        self.preparer.notify()

    def close(self, task: EntryTask) -> bool:
        """Ends the life of an entry here; returns whether it had not ended yet."""
        if self._tasks.get(task.key) is task:  # the same entry may have come again meanwhile
            del self._tasks[task.key]
        was_closed, task.closed = task.closed, True
        return not was_closed

    def drop(self, keys: Iterable[str]) -> None:
        """Closes the entries with these keys."""
        for key in keys:
            if key in self._tasks:
                self.close(self._tasks[key])
        self.waiting.remove_closed()
        self.wake_runner()  # it may have waited for the turn of one of these

    def drain(self) -> list[str]:
        """Closes the entries that have not started; returns their keys."""
        unstarted = [task for task in self._tasks.values() if task.started_at is None]
        for task in unstarted:
            self.close(task)
        self.waiting.remove_closed()
        return [task.key for task in unstarted]

    def close_late(self, items: Iterable[InputItem], now: float) -> list[EntryFailure]:
        """Closes those entries of some inputs whose deadline has passed; returns their failures."""
        late = [item.task for item in items if item.waiting.deadline <= now]
        failures = [late_failure_of(task) for task in late if self.close(task)]
        if failures:
            self.waiting.remove_closed()
        return failures

    # -- batches ------------------------------------------------------------------------------------------------------

    def plan_ahead(self) -> Plan | None:
        """Returns the batch to make ahead; None unless no runner is free, none is ready, and the batch is full."""
        busy = self.num_running == self._num_runners and self.waiting.ready is None
        if not busy or self.waiting.would_be_outranked(time.monotonic()):
            return None
        plan = self.plan()
        return plan if plan.full else None

    def plan(self) -> Plan:
        """Returns what to run now."""
        if not self.waiting:
            return Plan()
        busy = self.num_running > 0
        had_turn = self._suspect_turns.is_over
        return self.waiting.plan(self._limits(), time.monotonic(), busy=busy, suspects_had_turn=had_turn)

    def take_ready(self) -> Batch | None:
        """Takes the batch that is held ready; None if there is none, or if another one goes before it."""
        return None if self.waiting.ready is None else self.waiting.take_ready(self._limits(), time.monotonic())

    def _limits(self) -> Limits:
        return self.adaptive_limits.limits(self.waiting.tokens, self._running_tokens)

    def take(self, plan: Plan) -> tuple[tuple[BatchRow, ...], list[EntryFailure]]:
        """Takes what a plan names from the waiting inputs: the rows of its batch, and the entries that are late."""
        now = time.monotonic()
        rows, late = self.waiting.take(plan, now)
        failures = [late_failure_of(item.task) for item in late if self.close(item.task)]
        if late:
            self.waiting.remove_closed()
            self._log_early_refusal(min(item.waiting.deadline for item in late) - now, plan.seconds)
        return rows, failures

    def _log_early_refusal(self, left_s: float, batch_s: float) -> None:
        """Logs why entries are refused before their deadline: the estimate may be wrong, and is known only here."""
        if left_s > 0:
            self._log.write(
                logging.WARNING,
                "inputs were refused: the next batch would end after their deadline",
                lambda: {"batch_s": round(batch_s, 3), "left_s": round(left_s, 3)},
            )

    def start_batch(self, rows: Sequence[BatchRow], *, leads: bool, suspect: bool) -> None:
        """Records that one runner more is at work: another may find a batch, and the preparer one to make ready.

        A suspect begins when no runner is at work, so the leader always runs it, and the others wait for it.
        """
        self.waiting.record_start(rows, time.monotonic())
        self.num_running += 1
        self._running_tokens += sum(row.encoded.tokens for row in rows)
        self.leader_runs = self.leader_runs or leads
        self.suspect_runs = suspect
        if not suspect:
            self._suspect_turns.start_batch()
        if self.waiting:
            self.wake_runner()
            self.preparer.notify()

    def record_run(self, ended_at: float, run_s: float) -> None:
        """Records when a batch had run, on the monotonic clock, and for how long."""
        self.last_end = ended_at
        self._suspect_turns.end_run(run_s, suspect=self.suspect_runs)

    def end_batch(self, tokens: int, *, leads: bool) -> None:
        """Records that a runner is free again, after a batch that began with this number of tokens."""
        self.num_running -= 1
        self._running_tokens -= tokens
        if leads:
            self.leader_runs = self.suspect_runs = False
        if self.waiting and not self.leader_runs:
            self.wake_runner()  # a suspect may have waited for this end

    def wake_runner(self) -> None:
        """Wakes a free runner. The leader comes first, so that a batch that runs alone always runs in its thread.

        Each thread that uses several cores has its own helper threads. As soon as there are more of these, over all
        such threads, than cores, OpenMP lets them sleep between two operations.
        """
        (self.followers if self.leader_runs else self.leader).notify()

    def run_tokens(self, batch: Batch) -> int:
        """Returns the tokens that the device computes for a batch: with padding, unless batches are packed."""
        return batch.tokens if self._packed else batch.padded_tokens
