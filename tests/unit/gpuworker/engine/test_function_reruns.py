"""Classes that change their inputs in place: each run of an input gets values that no earlier run has changed."""

from __future__ import annotations

import threading
import time
from typing import Any

import orjson
import pytest

from gpuworker.engine.work import EntryTask
from shared.messages import PREDICT
from tests.unit.gpuworker.engine.scripted import LONG_S
from tests.unit.gpuworker.engine.test_function_batches import create_harness
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio

ERRORS = {"bug": AttributeError, "memory": MemoryError, "timeout": TimeoutError}


class Changing:
    """Multiplies the first element of each input by 100 in place and returns it.

    Then it raises the error that a text in the input names: a bug each time; the others twice, so that the batch fails
    and then the input alone. Its first batch waits until the others are there.
    """

    retry_on = (TimeoutError,)

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self._left = {"bug": 1_000, "memory": 2, "timeout": 2}

    def transform(self, values: list[list[Any]]) -> list[Any]:  # noqa: D102
        self.begun.set()
        assert self.may_end.wait(LONG_S)
        for each in values:
            each[0] *= 100
        for fault in [each.pop() for each in values if len(each) > 1]:
            self._left[fault] -= 1
            if self._left[fault] >= 0:
                raise ERRORS[fault]
        return [each[0] for each in values]


class ChangingPreprocessed(Changing):
    """The same with the values that its `preprocess_input` makes."""

    def preprocess_input(self, value: list[Any]) -> list[Any]:  # noqa: D102
        value[0] += 1
        return value


class ChangingAhead(Changing):
    """The same in `preprocess`, which also runs while another batch does."""

    def preprocess(self, inputs: list[list[Any]]) -> list[list[Any]]:  # noqa: D102
        for each in inputs:
            each[0] += 1
        return inputs


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize(("kind", "added"), [(Changing, 0), (ChangingPreprocessed, 1), (ChangingAhead, 1)])
async def test_each_run_gets_values_that_no_run_has_changed(kind: type[Changing], added: int, fault: str) -> None:
    """Halves after an exception or for want of memory, the second run of an input alone, and its later retry."""
    function = kind()
    harness = create_harness(function)
    harness.add([0])
    await wait_until(function.begun.is_set, "the first batch runs")
    harness.add([1], [2, fault], [3])
    function.may_end.set()
    await wait_until(lambda: len(harness.outputs) + len(harness.messages) == 4, "all are answered")
    expected = {str([number]): 100 * (number + added) for number in (0, 1, 3)}
    if fault != "bug":
        expected[str([2, fault])] = 100 * (2 + added)
    assert harness.outputs == expected
    assert harness.messages.keys() == ({str([2, fault])} if fault == "bug" else set())


@pytest.mark.parametrize("kind", [Changing, ChangingPreprocessed])
async def test_equal_inputs_in_one_row_run_again_with_unchanged_values(kind: type[Changing]) -> None:
    """Both get the output of the retry."""
    function = kind()
    function.may_end.set()
    harness = create_harness(function)
    content, now = orjson.dumps([2, "timeout"]).decode(), time.monotonic()
    harness.pipeline.add([EntryTask("pair", (content, content), now, now + LONG_S, op=PREDICT)])
    await wait_until(lambda: any(result.completed for result in harness.results), "it is answered")
    [task] = [task for result in harness.results for task in result.completed]
    assert task.outputs == [b"300" if kind is ChangingPreprocessed else b"200"] * 2
