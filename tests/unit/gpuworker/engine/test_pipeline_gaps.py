"""The gap before a batch: how long a runner was idle while inputs waited."""

from __future__ import annotations

import threading
import time

from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.work import BatchResult, Reports
from gpuworker.ipc.run_table import RunTable
from gpuworker.policy.limits import Limits
from tests.unit.gpuworker.engine.scripted import LONG_S, PipelineHarness, ScriptedBackend, entry_task
from tests.waiting import wait_until

LIMITS = Limits(max_size=8, max_tokens=1_000)
STRETCH_S = 0.1


async def pass_time() -> None:
    """Waits for STRETCH_S."""
    until = time.monotonic() + STRETCH_S
    await wait_until(lambda: time.monotonic() >= until, "the time has passed")


async def test_the_time_of_a_report_is_a_gap() -> None:
    """While a runner reports a result it runs nothing, and the next batch waits. The time of a run is no gap."""
    reporting, go_on = threading.Event(), threading.Event()
    results: list[BatchResult] = []

    def report(result: BatchResult) -> None:
        results.append(result)
        reporting.set()
        assert go_on.wait(LONG_S)

    backend = ScriptedBackend(prepares_ahead=False)
    backend.may_run.clear()
    pipeline = Pipeline(backend, LIMITS, Reports(lambda result, _: report(result), RunTable()))
    pipeline.start()
    pipeline.add([entry_task("first")])
    await wait_until(lambda: backend.batches == [["first"]], "the first batch runs")
    following = entry_task("next")
    pipeline.add([following])
    await pass_time()
    before_the_end = time.monotonic()
    backend.may_run.set()
    await wait_until(reporting.is_set, "its result is reported")
    await pass_time()
    go_on.set()
    await wait_until(lambda: len(results) == 2, "the next batch has run")
    assert following.started_at is not None
    assert STRETCH_S <= results[1].gap_s <= following.started_at - before_the_end


async def test_a_wait_for_more_is_a_gap() -> None:
    """There is work from the first input of the batch on, although the runner waits for a second input."""
    harness = PipelineHarness(ScriptedBackend(), Limits(max_size=2, max_tokens=1_000, wait_s=LONG_S))
    harness.add(entry_task("first"))
    await pass_time()
    harness.add(entry_task("second"))
    await wait_until(lambda: len(harness.completed) == 2, "both are answered")
    assert [sorted(batch) for batch in harness.backend.batches] == [["first", "second"]]
    assert harness.results[0].gap_s >= STRETCH_S


async def test_idle_time_without_work_is_no_gap() -> None:
    """A gap begins when the first input of the batch is ready to run."""
    harness = PipelineHarness(ScriptedBackend(), LIMITS)
    harness.add(entry_task("first"))
    await wait_until(lambda: "first" in harness.completed, "the first is answered")
    await pass_time()
    before = time.monotonic()
    harness.add(entry_task("next"))
    await wait_until(lambda: "next" in harness.completed, "the next is answered")
    started_at = harness.completed["next"].started_at
    assert started_at is not None
    assert 0 <= harness.results[-1].gap_s <= started_at - before
