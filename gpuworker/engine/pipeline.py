"""Tokenize, plan, run, hand back: each overlaps the next, so the device never waits for text.

Threads work on one shelf of waiting inputs. Whoever brings entries tokenizes them; the *reader* answers what takes a
tokenizer alone. A *runner* plans a batch from what waits, and runs it; a CPU has as many as keep all cores busy without
waiting for each other, a GPU two: one hands in while the other waits. Where the device is not what makes its batches,
the *preparer* collates a full one while another runs, and holds it ready. One that is not full is only planned when a
runner is free for it; and one with bulk in it is planned anew if others have come meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from queue import SimpleQueue

from gpuworker.backends.base import Backend
from gpuworker.policy.batching import Limits, Plan
from gpuworker.engine.failures import failure_of, is_out_of_memory, late_failure_of
from gpuworker.engine.tokenization import portions, read_alone, tokenized
from gpuworker.engine.isolation import Quarantine
from gpuworker.engine.inference import alike, results_of
from gpuworker.engine.waiting import Shelf
from gpuworker.engine.gpu_turn import OWN, Turn
from gpuworker.engine.work import Batch, Failed, Item, Ran, Row, Told, Work
from gpuworker.policy.adaptive_limits import Pace
from shared.messages import PREDICT, READING


class Pipeline:
    """Runs the inputs of entries in batches.

    Args:
        backend: the loaded model.
        limits: bounds of a batch.
        told: who is told what happens.
        turn: what is asked before each batch for the device.
    """

    def __init__(self, backend: Backend, limits: Limits, told: Told, turn: Turn = OWN) -> None:
        self._turn = turn
        self._backend = backend
        self._packed = limits.packed
        self._pace = Pace(limits, backend.runners)
        self._begun, self._ran, self._settle = told.begun, told.ran, told.settle
        self._lock = threading.Lock()
        self._preparing = threading.Condition(self._lock)
        self._leading = threading.Condition(self._lock)
        self._following = threading.Condition(self._lock)
        self._shelf = Shelf(limits, backend.runners)
        self._works: dict[str, Work] = {}
        self._reading: SimpleQueue[Work] = SimpleQueue()
        self._quarantine = Quarantine()
        self._running, self._running_tokens, self._ended = 0, 0, 0.0
        self._leader_runs = self._suspect_runs = self._suspect_ran = False

    def start(self) -> None:
        """Starts the threads, as daemons: the process ends without asking them."""
        threading.Thread(target=self._read, name="read", daemon=True).start()
        if self._backend.ahead:
            threading.Thread(target=self._prepare, name="prepare", daemon=True).start()
        for number in range(self._backend.runners):
            threading.Thread(target=self._run, args=(number == 0,), name=f"run {number}", daemon=True).start()

    def add(self, works: Iterable[Work]) -> None:
        """Takes in entries: returns when they are tokenized."""
        arrived, waiting = list(works), list[Work]()
        with self._lock:
            self._works.update((work.key, work) for work in arrived)
        for work in arrived:
            (self._reading.put if work.op in READING else waiting.append)(work)
        for some in portions(waiting):
            self._tokenize(some)

    def drop(self, keys: Iterable[str]) -> None:
        """Forgets entries that nobody waits for any more; an input that runs, runs to its end."""
        with self._lock:
            for key in keys:
                if key in self._works:
                    self._close(self._works[key])
            self._shelf.sweep()
            self._call_runner()  # it may have waited for the turn of one of these

    def drain(self) -> list[str]:
        """Gives up what has not begun and returns its keys; what has begun is finished."""
        with self._lock:
            unbegun = [work for work in self._works.values() if work.began is None]
            for work in unbegun:
                self._close(work)
            self._shelf.sweep()
            return [work.key for work in unbegun]

    # -- tokenizing ---------------------------------------------------------------------------------------------------

    def _tokenize(self, works: list[Work]) -> None:
        if works[0].op == PREDICT:  # what a user wrote may take this process with it
            items, broken = self._preprocess(works[0])
        else:
            items, broken = tokenized(self._backend, works)
        with self._lock:
            failed = [failure_of(work, error) for work, error in broken if self._close(work)]
            live = [item for item in items if not item.work.over]
            self._shelf.add(live)
            self._pace.arrived(time.monotonic(), len(live))
            self._call_runner()
            self._preparing.notify()
        if failed:
            self._ran(Ran(failed=failed))

    def _preprocess(self, work: Work) -> tuple[list[Item], list[tuple[Work, Exception]]]:
        with self._quarantine.entered(alone=work.attempts > 0):
            self._begun([work.key])
            read = tokenized(self._backend, [work])
            self._ran(Ran(paused=[work.key]))
        return read

    def _read(self) -> None:
        """Answers what needs no batch: beside the rest, so that a long text holds up nobody."""
        while True:
            work = self._reading.get()
            with self._lock:
                if work.over:
                    continue
                work.began = time.monotonic()
            ran = read_alone(self._backend, work, self._begun)
            with self._lock:
                was_open = self._close(work)
            if was_open:
                self._ran(ran)

    # -- the preparer -------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        while True:
            with self._lock:
                self._preparing.wait_for(self._may_prepare)
                rows, expired = self._take(self._plan())
                planned, bulk_led = time.monotonic(), self._shelf.bulk_leads
            if expired:
                self._ran(Ran(failed=expired))
            if rows:
                batch = self._collate(rows)
                with self._lock:
                    self._shelf.hold(batch, planned, bulk_led=bulk_led)
                    self._call_runner()

    def _may_prepare(self) -> bool:
        """A batch is made ahead only when no runner is free, none is ready, and a full one can be."""
        busy = self._running == self._backend.runners and self._shelf.ready is None
        return busy and not self._shelf.is_unsettled(time.monotonic()) and self._plan().full

    # -- the runners --------------------------------------------------------------------------------------------------

    def _run(self, leads: bool) -> None:  # noqa: FBT001 - a thread's argument
        last_end = time.monotonic()
        while True:
            batch, alone = self._next(leads=leads)
            tokens, rows = batch.tokens, self._live(batch)
            if rows:
                if sum(len(row.items) for row in rows) < len(batch.items):
                    batch = self._collate(rows)
                with self._quarantine.entered(alone=rows[0].waiting.suspect):
                    last_end = self._run_batch(batch, last_end, alone=alone)
            self._turn.give()
            with self._lock:
                self._running -= 1
                self._running_tokens -= tokens
                if leads:
                    self._leader_runs = self._suspect_runs = False
                if self._shelf and not self._leader_runs:
                    self._call_runner()  # a suspect may have waited for this end

    def _call_runner(self) -> None:
        """Wakes one that is free. The leader is called first, so that a batch on its own always runs in its thread.

        Each thread that uses several cores has helpers of its own, and OpenMP lets them sleep between two operations
        as soon as there are more of them, over all such threads, than cores.
        """
        (self._following if self._leader_runs else self._leading).notify()

    def _live(self, batch: Batch) -> tuple[Row, ...]:
        """Returns the rows that somebody still waits for: a batch that was held ready may have waited long."""
        now, items = time.monotonic(), batch.items
        with self._lock:
            late = [item.work for item in items if item.waiting.deadline <= now]
            failed = [late_failure_of(work) for work in late if self._close(work)]
            if failed:
                self._shelf.sweep()
        if failed:
            self._ran(Ran(failed=failed))
        if not any(item.work.over for item in items):
            return batch.rows
        live = (Row([item for item in row.items if not item.work.over]) for row in batch.rows)
        return tuple(row for row in live if row.items)

    def _next(self, *, leads: bool) -> tuple[Batch, bool]:
        """Waits for a batch, ready or planned now; returns it and whether the device is all its own.

        Answers what has expired meanwhile.
        """
        while True:
            if not self._turn.held and self._shelf.has_work:
                self._turn.take()
            with self._lock:
                while not leads and (self._suspect_runs or not self._leader_runs):
                    self._following.wait()
                if not self._turn.held and self._shelf.has_work:
                    continue  # it came in this moment
                if (ready := self._shelf.take_ready()) is not None:
                    self._begin(ready.rows, leads=leads, suspect=False)
                    return ready, False
                made = self._plan()
                rows, expired = self._take(made)
                if not rows and not expired:
                    self._turn.give()
                    wait_s = None if made.wake_at is None else max(0.0, made.wake_at - time.monotonic())
                    (self._leading if leads else self._following).wait(wait_s)
                    continue
                suspect = bool(rows) and rows[0].waiting.suspect
                alone = suspect or not (self._running or self._shelf)
                if rows:
                    self._begin(rows, leads=leads, suspect=suspect)
            if expired:
                self._ran(Ran(failed=expired))
            if rows:
                return self._collate(rows), alone

    def _begin(self, rows: tuple[Row, ...], *, leads: bool, suspect: bool) -> None:
        """One runner more is at work: another may find something to do, and the preparer something to make ready.

        A suspect begins when no runner is at work, so it is always the leader that runs it, and the others wait for it.
        """
        self._shelf.begins(rows, time.monotonic())
        self._running += 1
        self._running_tokens += sum(row.encoded.tokens for row in rows)
        self._leader_runs = self._leader_runs or leads
        self._suspect_runs = self._suspect_ran = suspect
        if self._shelf:
            self._call_runner()
            self._preparing.notify()

    def _run_batch(self, batch: Batch, idle_since: float, *, alone: bool) -> float:
        """Runs a batch and hands back what it gave. Returns when it had run, before that was handed back."""
        now = time.monotonic()
        items, tokens = batch.items, batch.tokens
        ran = Ran(len(batch.rows), len(items), tokens, tokens if self._packed else batch.padded)
        ran.gap = max(0.0, now - max(idle_since, min(item.shelved for item in items)))
        with self._lock:
            works = {item.work.key: item.work for item in items}
            fresh = [key for key, work in works.items() if not work.runs]
            for work in works.values():
                work.runs += 1
                work.began = work.began or now
            if not self._suspect_runs:
                ran.behind, ran.full = bool(self._shelf), self._pace.is_full(batch.lengths)
        if self._suspect_runs:
            self._settle()  # what ran before must not be taken for what an engine died of
        if fresh:
            self._begun(fresh)
        self._compute(batch, ran, alone=alone)
        ended = ran.ended = time.monotonic()
        ran.busy_s = self._backend.busy_s()
        with self._lock:
            ran.seconds = ended - (max(now, self._ended) if self._backend.in_turn else now)
            self._ended = ended
            self._pace.ran(ended, ran.seconds, ran.size, ran.padded, sum(len(work.inputs) for work in ran.done))
            ran.full_s, ran.max_tokens = self._pace.full_s, self._pace.max_tokens
            for work in works.values():
                work.runs -= 1
            ran.paused = [key for key, work in works.items() if not work.runs and not work.over]
            if ran.failed:
                self._shelf.sweep()
        self._ran(ran)
        return ended

    def _compute(self, batch: Batch, ran: Ran, *, alone: bool, again: bool = False) -> None:
        """Runs a batch; one that fails is halved until the texts that fail are alone.

        A single text for which there was no memory runs `again` once: what took it may be over.
        """
        failed: list[Failed] = []
        no_memory = False
        kinds = alike(batch.rows)
        if len(kinds) > 1:
            for rows in kinds:
                self._compute(self._collate(rows), ran, alone=alone)
            return
        try:
            given = results_of(self._backend, batch, alone=alone)
        except Exception as error:  # noqa: BLE001 - whatever the model raises, its neighbours get their answers
            no_memory = is_out_of_memory(error)
            failed = [failure_of(item.work, error) for item in batch.items]
        if failed:  # out of the block above: its error holds what the run has allocated
            self._compute_less(batch, ran, failed, alone=alone, no_memory=no_memory, again=again)
            return
        with self._lock:
            for item, vector in given:
                work = item.work
                work.rows[item.at] = vector
                work.left -= 1
                if work.left == 0 and self._close(work):
                    ran.done.append(work)

    def _compute_less(
        self, batch: Batch, ran: Ran, failed: list[Failed], *, alone: bool, no_memory: bool, again: bool
    ) -> None:
        """Runs the halves of a batch that has failed; for a single text it fails its entries."""
        if no_memory:
            with self._lock:
                self._pace.ran_out(batch.tokens if self._packed else batch.padded)
            self._backend.free_memory()
        middle = len(batch.rows) // 2
        if middle:
            for half in (batch.rows[:middle], batch.rows[middle:]):
                self._compute(self._collate(half), ran, alone=alone)
        elif no_memory and not again:
            self._compute(self._collate(batch.rows), ran, alone=alone, again=True)
        else:
            with self._lock:
                works = [item.work for item in batch.items]
                ran.failed += [each for work, each in zip(works, failed, strict=True) if self._close(work)]

    # -- the shelf, under the lock ------------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        if not self._shelf:
            return Plan()
        limits = self._pace.limits(self._shelf.tokens, self._running_tokens)
        return self._shelf.plan(limits, time.monotonic(), busy=self._running > 0, suspect_ran=self._suspect_ran)

    def _take(self, made: Plan) -> tuple[tuple[Row, ...], list[Failed]]:
        """Takes off the shelf what a plan names: the rows of its batch, and the entries whose deadline has passed."""
        rows, late = self._shelf.take(made, time.monotonic())
        failed = [late_failure_of(item.work) for item in late if self._close(item.work)]
        if late:
            self._shelf.sweep()
        return rows, failed

    def _close(self, work: Work) -> bool:
        """Ends the life of an entry here; returns whether it had not ended yet."""
        if self._works.get(work.key) is work:  # the same entry may have come again meanwhile
            del self._works[work.key]
        ended, work.over = work.over, True
        return not ended

    def _collate(self, rows: tuple[Row, ...]) -> Batch:
        try:
            return Batch(rows, self._backend.collate([row.encoded for row in rows]))
        except Exception as error:  # noqa: BLE001 - it fails the inputs that caused it, as an error in the run does
            return Batch(rows, None, error)
