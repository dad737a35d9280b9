"""A suspect is alone wherever an input may kill the engine: in batches, and in `preprocess` of a user's function."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from gpuworker.engine.work import EntryTask
from gpuworker.policy.limits import Limits
from shared.messages import DEFAULT_OPTIONS, PREDICT, Input, Options
from tests.unit.gpuworker.engine.scripted import LONG_S, PipelineHarness, ScriptedBackend, Text, entry_task
from tests.waiting import wait_until


@dataclass
class Function(ScriptedBackend):
    """A user's function.

    Attributes:
        preprocessed: the inputs whose preprocessing began.
        may_preprocess: while this is not set, preprocessing does not end.
    """

    preprocessed: list[str] = field(default_factory=list)
    may_preprocess: threading.Event = field(default_factory=threading.Event)

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> list[Text]:
        """Records the inputs, and waits until it may preprocess them."""
        self.preprocessed += [str(each) for each in inputs]
        assert self.may_preprocess.wait(LONG_S)
        return super().tokenize(inputs, options)


def function_task(key: str, attempts: int = 0) -> EntryTask:
    """Returns an entry of a function."""
    return replace(entry_task(key, attempts=attempts), op=PREDICT)


def add_in_thread(harness: PipelineHarness, entry: EntryTask) -> threading.Thread:
    """Adds an entry in a separate thread, which may have to wait."""
    thread = threading.Thread(target=harness.add, args=(entry,), daemon=True)
    thread.start()
    return thread


@pytest.fixture
def function() -> Function:
    """A function that preprocesses at once, and whose batches run until `may_run` is set."""
    found = Function(ops=frozenset((PREDICT,)))
    found.may_preprocess.set()
    found.may_run.clear()
    return found


async def test_nothing_is_preprocessed_while_a_suspect_runs(function: Function) -> None:
    """An input that was preprocessed beside it would be accused with it."""
    harness = PipelineHarness(function, Limits(8, 1_000))
    harness.add(function_task("suspect", attempts=1))
    await wait_until(lambda: function.batches == [["suspect"]], "the suspect runs")
    other = add_in_thread(harness, function_task("other"))
    other.join(0.05)
    assert function.preprocessed == ["suspect"]
    function.may_run.set()
    await wait_until(lambda: len(harness.answered_keys) == 2, "both are answered")
    assert function.preprocessed == ["suspect", "other"]


async def test_a_suspect_is_preprocessed_when_nothing_runs(function: Function) -> None:
    """Nothing begins while it is preprocessed."""
    harness = PipelineHarness(function, Limits(8, 1_000))
    harness.add(function_task("first"))
    await wait_until(lambda: function.batches == [["first"]], "a batch runs")
    suspect = add_in_thread(harness, function_task("suspect", attempts=1))
    suspect.join(0.05)
    assert function.preprocessed == ["first"]
    function.may_preprocess.clear()
    function.may_run.set()
    await wait_until(lambda: function.preprocessed == ["first", "suspect"], "the suspect is preprocessed")
    assert harness.answered_keys == ["first"]
    function.may_preprocess.set()
    await wait_until(lambda: len(harness.answered_keys) == 2, "both are answered")


async def test_other_inputs_are_preprocessed_while_batches_run(function: Function) -> None:
    """Preprocessing and batches overlap."""
    harness = PipelineHarness(function, Limits(8, 1_000))
    harness.add(function_task("first"))
    await wait_until(lambda: function.batches == [["first"]], "a batch runs")
    harness.add(function_task("second"))
    assert function.preprocessed == ["first", "second"]
    function.may_run.set()
    await wait_until(lambda: len(harness.answered_keys) == 2, "both are answered")
