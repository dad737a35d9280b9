"""The runners of a pipeline: each thread waits for a batch, runs it, and reports its result."""

from __future__ import annotations

import threading
import time
from functools import partial

from gpuworker.backends.base import MODEL_ERRORS, Backend
from gpuworker.engine.failures import ModelFailure
from gpuworker.engine.gpu_turn import GpuTurn
from gpuworker.engine.inference import collate, run_batch, split_runnable
from gpuworker.engine.model_errors import ModelErrors
from gpuworker.engine.schedule import Schedule
from gpuworker.engine.suspect_isolation import IsolationLock
from gpuworker.engine.work import Batch, BatchResult, BatchRow, InputItem, Reports
from shared.messages import PREDICT


class BatchRunner:
    """Runs the batches of a schedule, in one thread for each runner of the backend.

    Args:
        backend: the loaded model.
        schedule: shared with the other threads of the pipeline.
        reports: where results and runs are reported.
        isolation: keeps suspects apart from other inputs.
        turn: acquired before each batch.
        errors: what is done about exceptions of the model.
    """

    def __init__(
        self,
        backend: Backend,
        schedule: Schedule,
        reports: Reports,
        isolation: IsolationLock,
        turn: GpuTurn,
        errors: ModelErrors,
    ) -> None:
        self._backend = backend
        self._schedule = schedule
        self._reports = reports
        self._isolation = isolation
        self._turn = turn
        self._errors = errors

    def run(self, leads: bool) -> None:  # noqa: FBT001 - a thread's argument
        """Runs batches for ever. One of the threads leads: see Schedule.wake_runner."""
        last_end = time.monotonic()
        while True:
            batch, exclusive = self._next(leads=leads)
            tokens, rows = batch.tokens, self._live_rows(batch)
            if rows:
                if sum(len(row.items) for row in rows) < len(batch.items):
                    batch = collate(self._backend, rows)
                with self._isolation.enter(isolated=rows[0].waiting.suspect):
                    last_end = self._run(batch, last_end, exclusive=exclusive)
            self._turn.release()
            with self._schedule.lock:
                self._schedule.end_batch(tokens, leads=leads)

    def _next(self, *, leads: bool) -> tuple[Batch, bool]:
        """Waits for a batch, ready or planned now; returns it, and whether it has the whole device.

        Reports what has expired meanwhile.
        """
        schedule = self._schedule
        while True:
            if not self._turn.held and schedule.waiting.has_work:
                self._turn.acquire()
            with schedule.lock:
                while not leads and (schedule.suspect_runs or not schedule.leader_runs):
                    schedule.followers.wait()
                if not self._turn.held and schedule.waiting.has_work:
                    continue  # it arrived in this moment
                if (ready := schedule.take_ready()) is not None:
                    schedule.start_batch(ready.rows, leads=leads, suspect=False)
                    return ready, False
                plan = schedule.plan()
                rows, expired = schedule.take(plan)
                if not rows and not expired:
                    self._wait(schedule.leader if leads else schedule.followers, plan.wake_at)
                    continue
                suspect = bool(rows) and rows[0].waiting.suspect
                exclusive = suspect or not (schedule.num_running or schedule.waiting)
                if rows:
                    schedule.start_batch(rows, leads=leads, suspect=suspect)
            if expired:
                self._reports.on_result(BatchResult(failures=expired))
            if rows:
                return collate(self._backend, rows), exclusive

    def _wait(self, wakes: threading.Condition, wake_at: float | None) -> None:
        """Waits until `wake_at` (monotonic clock), unless a batch is ready before which short inputs were to go."""
        if not self._schedule.waiting.let_ready_go():
            self._turn.release()
            wakes.wait(None if wake_at is None else max(0.0, wake_at - time.monotonic()))

    def _live_rows(self, batch: Batch) -> tuple[BatchRow, ...]:
        """Returns the rows with inputs that still need an answer: a batch that was held ready may have waited long."""
        now, items = time.monotonic(), batch.items
        with self._schedule.lock:
            failures = self._schedule.close_late(items, now)
        if failures:
            self._reports.on_result(BatchResult(failures=failures))
        if not any(item.task.closed for item in items):
            return batch.rows
        live = (BatchRow([item for item in row.items if not item.task.closed]) for row in batch.rows)
        return tuple(row for row in live if row.items)

    def _run(self, batch: Batch, idle_since: float, *, exclusive: bool) -> float:
        """Runs a batch and reports its result. Returns when it had run, before the report."""
        schedule, now, items = self._schedule, time.monotonic(), batch.items
        result = BatchResult(len(batch.rows), len(items), batch.tokens, schedule.run_tokens(batch))
        result.cost = sum([item.task.cost / len(item.task.inputs) for item in items])
        result.is_retry = all(item.num_retries for item in items)
        result.gap_s = max(0.0, now - max(idle_since, min(item.ready_at for item in items)))
        with schedule.lock:
            tasks = {item.task.key: item.task for item in items}
            for task in tasks.values():
                task.batch_size = max(task.batch_size, result.size)
                task.started_at = task.started_at or now
            if not schedule.suspect_runs:
                adaptive = schedule.adaptive_limits
                result.has_backlog = bool(schedule.waiting) and adaptive.is_large(result.padded_tokens)
                result.is_full = adaptive.is_full(batch.lengths)
        if schedule.suspect_runs:
            self._reports.flush()  # if the engine dies of the suspect, what ran before must not count as the cause
        self._reports.begin(tasks.values())
        self._compute(batch, result, exclusive=exclusive)
        ended_at = result.ended_at = time.monotonic()
        result.busy_s = self._backend.busy_s()
        with schedule.lock:
            began = max(now, schedule.last_end) if self._backend.runs_sequentially else now
            result.run_s = ended_at - began
            batch.share_out(result.run_s)
            schedule.record_run(ended_at, result.run_s)
            limits, answered = schedule.adaptive_limits, sum(len(task.inputs) for task in result.completed)
            limits.record_batch(ended_at, result.run_s, result.size, result.padded_tokens, answered)
            result.full_batch_s, result.max_batch_tokens = limits.full_s, limits.max_tokens
            result.unfinished_keys = [key for key, task in tasks.items() if not task.closed]
            if result.failures:
                schedule.waiting.remove_closed()
                result.failures = [each._replace(device_s=tasks[each.key].device_s) for each in result.failures]
        self._reports.on_result(result, tasks.values())
        return ended_at

    def _compute(self, batch: Batch, result: BatchResult, *, exclusive: bool, is_second_run: bool = False) -> None:
        """Runs a batch. A batch that fails is halved until each text that fails is alone.

        If there is no memory for a single text, the text runs once more: what took the memory may have ended.
        """
        failure: ModelFailure | None = None
        parts = split_runnable(self._backend, batch.rows)
        if len(parts) > 1:
            for rows in parts:
                self._compute(collate(self._backend, rows), result, exclusive=exclusive)
            return
        try:
            outputs = run_batch(self._backend, batch, exclusive=exclusive)
        except MODEL_ERRORS as error:  # whatever the model raises, its neighbours get their answers
            failure = self._errors.record(error, result)
        if failure is not None:  # out of the block above: its error holds what the run has allocated
            if failure.is_out_of_memory:
                self._free_memory(batch)
            self._compute_less(batch, result, failure, exclusive=exclusive, is_second_run=is_second_run)
            return
        result.num_outputs += len(outputs)
        with self._schedule.lock:
            for item, output in outputs:
                task = item.task
                task.outputs[item.input_index] = output
                task.num_pending -= 1
                if task.num_pending == 0 and self._schedule.close(task):
                    result.completed.append(task)

    def _free_memory(self, batch: Batch) -> None:
        """Lowers the limits below a batch for which there was no memory, and frees what the model keeps."""
        with self._schedule.lock:
            self._schedule.adaptive_limits.record_out_of_memory(self._schedule.run_tokens(batch))
        self._backend.free_memory()

    def _compute_less(
        self, batch: Batch, result: BatchResult, failure: ModelFailure, *, exclusive: bool, is_second_run: bool
    ) -> None:
        """Runs the halves of a batch that has failed. A single text runs again, now or later, or fails its entries."""
        middle = len(batch.rows) // 2
        if middle:
            for half in (batch.rows[:middle], batch.rows[middle:]):
                self._compute(collate(self._backend, half), result, exclusive=exclusive)
        elif failure.is_out_of_memory and not is_second_run:
            self._compute(collate(self._backend, batch.rows), result, exclusive=exclusive, is_second_run=True)
        else:
            with self._schedule.lock:
                if (
                    failure.is_out_of_memory and PREDICT in self._backend.ops
                ):  # of a text, larger batches have none either
                    self._schedule.adaptive_limits.forget_out_of_memory()
                for item in batch.items:
                    again = partial(self._run_again, item._replace(num_retries=item.num_retries + 1))
                    if self._errors.retry(failure, item.num_retries, item.waiting.deadline, again):
                        continue
                    if self._schedule.close(item.task):
                        own = failure._replace(input_index=item.input_index)
                        result.failures.append(self._errors.failure_of(own, item.task, item.num_retries))

    def _run_again(self, item: InputItem) -> None:
        with self._schedule.lock:
            self._schedule.add_items([item._replace(ready_at=time.monotonic())])
