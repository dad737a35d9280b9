"""The gap before a batch: how long a runner stood still though something waited."""

from __future__ import annotations

import threading
import time

from gpuworker.policy.batching import Limits
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.work import Ran, Told
from tests.unit.gpuworker.engine.scripted import LONG_S, Line, Scripted, work
from tests.waiting import wait_until

LIMITS = Limits(max_size=8, max_tokens=1_000)
STRETCH_S = 0.1


async def pass_time() -> None:
    """Lets a stretch go by."""
    until = time.monotonic() + STRETCH_S
    await wait_until(lambda: time.monotonic() >= until, "a stretch has gone by")


async def test_the_time_of_handing_back_is_a_gap() -> None:
    """While a runner hands back what a batch gave, nothing runs in it, and the next batch waits. Its run is no gap."""
    handing_back, go_on = threading.Event(), threading.Event()
    rans: list[Ran] = []

    def ran(found: Ran) -> None:
        rans.append(found)
        handing_back.set()
        assert go_on.wait(LONG_S)

    backend = Scripted(ahead=False)
    backend.free.clear()
    pipeline = Pipeline(backend, LIMITS, Told(lambda _keys: None, ran, lambda: None))
    pipeline.start()
    pipeline.add([work("first")])
    await wait_until(lambda: backend.batches == [["first"]], "the first batch runs")
    following = work("next")
    pipeline.add([following])
    await pass_time()
    before_the_end = time.monotonic()
    backend.free.set()
    await wait_until(handing_back.is_set, "it is handed back")
    await pass_time()
    go_on.set()
    await wait_until(lambda: len(rans) == 2, "the next batch has run")
    assert following.began is not None
    assert STRETCH_S <= rans[1].gap <= following.began - before_the_end


async def test_a_wait_for_more_is_a_gap() -> None:
    """There is work from the first input of the batch on, though the runner waits for a second."""
    line = Line(Scripted(), Limits(max_size=2, max_tokens=1_000, wait_s=LONG_S))
    line.add(work("first"))
    await pass_time()
    line.add(work("second"))
    await wait_until(lambda: len(line.done) == 2, "both are answered")
    assert [sorted(batch) for batch in line.backend.batches] == [["first", "second"]]
    assert line.rans[0].gap >= STRETCH_S


async def test_an_idle_moment_without_work_is_no_gap() -> None:
    """It begins when the first of the batch's inputs is there to be run."""
    line = Line(Scripted(), LIMITS)
    line.add(work("first"))
    await wait_until(lambda: "first" in line.done, "the first is answered")
    await pass_time()
    before = time.monotonic()
    line.add(work("next"))
    await wait_until(lambda: "next" in line.done, "the next is answered")
    began = line.done["next"].began
    assert began is not None
    assert 0 <= line.rans[-1].gap <= began - before
