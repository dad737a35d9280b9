"""Tokenize, plan, run, report: each step overlaps the next, so that the device never waits for text.

The threads share one schedule of waiting inputs. The thread that adds entries tokenizes them; the *reader* answers
entries that need a tokenizer alone. A *runner* plans a batch of the waiting inputs and runs it. A CPU has enough
runners to keep all cores busy, and few enough that none waits for another; a GPU has one. If batches are made elsewhere
than on the device that runs them, the *preparer* collates a full batch while another runs, and holds it ready (for a
GPU, it starts the copies too). A batch that is not full is only planned when a runner is free for it; a ready batch
that contains bulk is planned again if interactive inputs arrive before it begins, unless it was bulk's turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import partial
from queue import SimpleQueue

from gpuworker.backends.base import Backend
from gpuworker.engine.batch_runner import BatchRunner
from gpuworker.engine.failures import late_failure_of
from gpuworker.engine.gpu_turn import UNSHARED, GpuTurn
from gpuworker.engine.inference import collate_now
from gpuworker.engine.model_errors import DEFAULT_ERROR_OPTIONS, ErrorOptions, ModelErrors
from gpuworker.engine.schedule import Schedule
from gpuworker.engine.suspect_isolation import IsolationLock
from gpuworker.engine.tokenization import group_calls, run_tokenizer_op, tokenize_tasks
from gpuworker.engine.work import Batch, BatchResult, BatchRow, EntryTask, InputItem, Reports
from gpuworker.policy.limits import Limits
from shared.messages import PREDICT, TOKENIZER_OPS


class Pipeline:
    """Runs the inputs of entries in batches.

    Args:
        backend: the loaded model.
        limits: of a batch.
        reports: where results and runs are reported.
        turn: acquired before each batch.
        error_options: what is done about exceptions of the model.
    """

    def __init__(
        self,
        backend: Backend,
        limits: Limits,
        reports: Reports,
        turn: GpuTurn = UNSHARED,
        error_options: ErrorOptions = DEFAULT_ERROR_OPTIONS,
    ) -> None:
        self._backend = backend
        self._reports = reports
        self._schedule = Schedule(limits, backend.runners)
        self._isolation = IsolationLock()
        self._errors = ModelErrors(error_options, backend.retry_on)
        self._runner = BatchRunner(backend, self._schedule, reports, self._isolation, turn, self._errors)
        self._preprocess_lock = threading.Lock()
        self._tokenizer_tasks: SimpleQueue[EntryTask] = SimpleQueue()

    def start(self) -> None:
        """Starts the threads, as daemons: the process ends without waiting for them."""
        self._errors.start()
        threading.Thread(target=self._read, name="read", daemon=True).start()
        if self._backend.prepares_ahead:
            threading.Thread(target=self._prepare, name="prepare", daemon=True).start()
        for number in range(self._backend.runners):
            leads = number == 0
            threading.Thread(target=self._runner.run, args=(leads,), name=f"run {number}", daemon=True).start()

    def add(self, tasks: Iterable[EntryTask]) -> None:
        """Adds entries; returns when those that go into batches are tokenized."""
        added, batched = list(tasks), list[EntryTask]()
        with self._schedule.lock:
            self._schedule.add_tasks(added)
        for task in added:
            (self._tokenizer_tasks.put if task.op in TOKENIZER_OPS else batched.append)(task)
        for group in group_calls(batched):
            self._tokenize(group)

    def drop(self, keys: Iterable[str]) -> None:
        """Forgets entries that need no answer any more; an input that runs, runs to its end."""
        with self._schedule.lock:
            self._schedule.drop(keys)

    def drain(self) -> list[str]:
        """Gives up the entries that have not started and returns their keys; those that have started are finished."""
        with self._schedule.lock:
            return self._schedule.drain()

    def _tokenize(self, tasks: list[EntryTask]) -> None:
        if tasks[0].op == PREDICT:  # user code may end this process
            items, errors = self._preprocess(tasks[0])
        else:
            items, errors = tokenize_tasks(self._backend, tasks)
        result = BatchResult()
        failed = [(task, self._errors.record(error, result)) for task, error in errors]
        result.is_retry = all(task.num_retries for task, _ in failed)  # before a retry begins in its thread
        with self._schedule.lock:
            self._schedule.add_items(items)
            for task, failure in failed:
                again = partial(self._tokenize_again, task)
                if task.closed or self._errors.retry(failure, task.num_retries, task.deadline, again):
                    continue
                self._schedule.close(task)
                result.failures.append(self._errors.failure_of(failure, task, task.num_retries))
        if failed:
            self._reports.on_result(result)

    def _tokenize_again(self, task: EntryTask) -> None:
        task.num_retries += 1
        if not task.closed:
            self._tokenize([task])

    def _preprocess(self, task: EntryTask) -> tuple[list[InputItem], list[tuple[EntryTask, Exception]]]:
        # A user's code expects one call at a time; a retry comes in a separate thread.
        with self._preprocess_lock, self._isolation.enter(isolated=task.attempts > 0):
            self._reports.begin([task])
            tokenized = tokenize_tasks(self._backend, [task])
            self._reports.end([task])
        return tokenized

    def _read(self) -> None:
        """Answers entries that need no batch: in a separate thread, so that a long text delays no other input."""
        while True:
            task = self._tokenizer_tasks.get()
            with self._schedule.lock:
                if task.closed:
                    continue
                task.started_at = time.monotonic()
                is_late = task.started_at >= task.deadline
            ran = [] if is_late else [task]
            self._reports.begin(ran)
            result = (
                BatchResult(failures=[late_failure_of(task)])
                if is_late
                else run_tokenizer_op(self._backend, task, self._errors)
            )
            with self._schedule.lock:
                was_open = self._schedule.close(task)
            if was_open:
                self._reports.on_result(result, ran)
            else:
                self._reports.end(ran)

    def _prepare(self) -> None:
        """Makes full batches ahead, while all runners are busy."""
        schedule = self._schedule
        while True:
            with schedule.lock:
                while (plan := schedule.plan_ahead()) is None:
                    schedule.preparer.wait()
                rows, expired = schedule.take(plan)
                planned_at, waiting = time.monotonic(), schedule.waiting
                bulk_first, passes_over = waiting.bulk_first, waiting.passes_over
            if expired:
                self._reports.on_result(BatchResult(failures=expired))
            if rows:
                batch = self._collate_ahead(rows)
                with schedule.lock:
                    waiting.hold_ready(batch, planned_at, bulk_first=bulk_first, passes_over=passes_over)
                    schedule.wake_runner()

    def _collate_ahead(self, rows: tuple[BatchRow, ...]) -> Batch:
        """Returns rows as a batch. While a user's code does it, their entries count as started, as if they ran."""
        if not self._backend.collate_runs_user_code:
            return collate_now(self._backend, rows)
        tasks = {item.task.key: item.task for row in rows for item in row.items}.values()
        with self._isolation.enter(isolated=False):
            self._reports.begin(tasks)
            batch = collate_now(self._backend, rows)
            self._reports.end(tasks)
        return batch
