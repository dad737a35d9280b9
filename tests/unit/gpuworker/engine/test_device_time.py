"""The time of the device: the run time of batches, shared out to entries."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gpuworker.engine.work import Batch, BatchRow, EntryTask, InputItem
from gpuworker.policy.limits import Limits
from tests.unit.gpuworker.engine.scripted import PipelineHarness, ScriptedBackend, Text, entry_task
from tests.waiting import wait_until


async def test_the_run_time_of_batches_is_shared_out_to_entries() -> None:
    """Entries that fail, that run in parts or that have the same text have shares; together these are all of it."""
    backend = ScriptedBackend(runners=1)
    backend.may_run.clear()
    harness = PipelineHarness(backend, Limits(max_size=3, max_tokens=1_000))
    same = [entry_task(f"s{i}", "the same") for i in range(2)]
    harness.add(*same, entry_task("bad", "!run"), entry_task("long", *("x" * n for n in range(1, 9))))
    harness.backend.may_run.set()
    await wait_until(lambda: len(harness.answered_keys) == 4, "all are answered")
    assert harness.failures == {"bad": "input_failed"}
    failed_s = sum(failure.device_s for result in harness.results for failure in result.failures)
    shares = {key: task.device_s for key, task in harness.completed.items()}
    assert min(failed_s, *shares.values()) > 0
    assert failed_s + sum(shares.values()) == pytest.approx(sum(result.run_s for result in harness.results))
    assert shares["s0"] == shares["s1"]


def test_a_batch_is_shared_out_by_tokens() -> None:
    """Each row by its length; equal texts divide it. Inputs without tokens have equal shares."""
    tasks = [entry_task(key) for key in "abcd"]
    rows = [batch_row("xxx", tasks[:1]), batch_row("x", tasks[1:3])]
    Batch(tuple(rows), None).share_out(8.0)
    assert [each.device_s for each in tasks] == [6.0, 1.0, 1.0, 0.0]
    Batch((batch_row("", tasks[2:3]), batch_row("", tasks[3:])), None).share_out(2.0)
    assert [each.device_s for each in tasks] == [6.0, 1.0, 2.0, 1.0]


def batch_row(text: str, tasks: list[EntryTask]) -> BatchRow:
    """Returns a row that answers an input of each entry."""
    return BatchRow([InputItem(each, 0, Text(text), cast("Any", None), 0.0) for each in tasks])
