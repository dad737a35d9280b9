"""A user's function in the pipeline: what overlaps, what counts as started, and what an exception leads to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, cast

import orjson
import pytest

from gpuworker.backends.base import Backend, InputRefusedError
from gpuworker.backends.function_methods import CollatedInputs, FunctionMethods
from gpuworker.engine.delayed_calls import DelayedCalls
from gpuworker.engine.model_errors import ErrorOptions
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.work import EntryTask
from gpuworker.policy.limits import Limits
from gpuworker.policy.retries import RetryLimits
from shared.messages import PREDICT
from tests.unit.gpuworker.engine.scripted import LONG_S, RecordingReports, ScriptedBackend
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio

LIMITS = Limits(max_size=2, max_tokens=1_000, packed=True)
SLOTS = count()
RETRIES = RetryLimits(max_retries=2, backoff_s=0.001)


class FunctionHarness(ScriptedBackend):
    """The methods of a function in a pipeline that collects its reports.

    Attributes:
        reports: of the pipeline.
        results: results of batches, in order.
    """

    def __init__(self, function: object, options: ErrorOptions) -> None:
        super().__init__(ops=frozenset((PREDICT,)), dim=0, packs=True)
        self.methods = FunctionMethods(function)
        self.splits_batches = True
        self.prepares_ahead = self.methods.preprocesses_batches
        self.collate_runs_user_code = self.methods.preprocesses_batches or self.methods.preprocesses_inputs
        self.retry_on = self.methods.retry_on
        self.reports = RecordingReports()
        self.results = self.reports.results
        self.pipeline = Pipeline(cast("Backend", self), LIMITS, self.reports, error_options=options)
        self.pipeline.start()

    def tokenize(self, inputs: Any, _options: Any = None) -> Any:  # noqa: ANN401
        """Preprocesses each input."""
        return [self.methods.preprocess_input(each) for each in inputs]

    def collate(self, inputs: Any) -> Any:  # noqa: ANN401
        """Preprocesses a batch."""
        return self.methods.preprocess(inputs)

    def run(self, batch: CollatedInputs, _op: str = PREDICT, *, exclusive: bool, raw: bool = False) -> Any:  # type: ignore[override]  # noqa: ANN401, ARG002
        """Computes a batch."""
        return self.methods.compute(batch)

    def add(self, *values: object, timeout_s: float = LONG_S) -> None:
        """Adds an entry for each value, under the value as its key."""
        now = time.monotonic()
        self.pipeline.add(
            [
                EntryTask(str(each), (orjson.dumps(each).decode(),), now, now + timeout_s, op=PREDICT, slot=slot)
                for each, slot in zip(values, SLOTS, strict=False)
            ]
        )

    @property
    def outputs(self) -> dict[str, object]:
        """The output of each entry that was completed, by key."""
        done = [task for result in list(self.results) for task in result.completed]
        return {task.key: orjson.loads(cast("bytes", task.outputs[0])) for task in done}

    @property
    def messages(self) -> dict[str, str]:
        """The messages of the entries that failed, by key."""
        return {failure.key: failure.message for result in list(self.results) for failure in result.failures}

    @property
    def errors(self) -> list[str]:
        """The types of all exceptions that were reported."""
        return [name for result in list(self.results) for name in result.errors]

    async def answer(self, *values: object) -> None:
        """Adds values and waits until each has an output or a failure."""
        keys = {str(each) for each in values}
        self.add(*values)
        await wait_until(lambda: keys <= self.outputs.keys() | self.messages.keys(), "all are answered")


def create_harness(
    function: object,
    retries: RetryLimits = RETRIES,
    messages: Any = "off",  # noqa: ANN401
) -> FunctionHarness:
    """Returns a pipeline with a function."""
    return FunctionHarness(function, ErrorOptions(messages, retries))


class Overlapping:
    """Its first `transform` ends only after another batch was preprocessed."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._second = threading.Event()

    def preprocess(self, inputs: list[int]) -> list[int]:  # noqa: D102
        self.events.append(f"preprocess {inputs}")
        if 0 not in inputs:
            self._second.set()
        return inputs

    def transform(self, batch: list[int]) -> list[int]:  # noqa: D102
        self.events.append(f"transform {batch}")
        assert self._second.wait(LONG_S)
        self.events.append(f"done {batch}")
        return batch


async def test_the_next_batch_is_preprocessed_while_the_present_one_runs() -> None:
    """The first batch cannot end before the second is preprocessed, and it ends."""
    function = Overlapping()
    harness = create_harness(function)
    harness.add(0)
    await wait_until(lambda: "transform [0]" in function.events, "the first batch runs")
    await harness.answer(1, 2)
    assert function.events.index("preprocess [1, 2]") < function.events.index("done [0]")
    assert function.events.index("done [0]") < function.events.index("transform [1, 2]")
    await wait_until(lambda: len(harness.reports.ended) == 8, "the last runs have ended")
    assert harness.reports.begun == [*"00", *"12", *"12", *"12"], "on arrival, perhaps ahead, and as they run"
    ended = harness.reports.ended  # the first run ends while the other batch is prepared
    assert (ended[:3], sorted(ended[3:6]), ended[6:]) == ([*"012"], [*"012"], [*"12"])


class Raising:
    """Raises the exception that an input selects, with its text as the message."""

    def __init__(self, **errors: type[Exception]) -> None:
        self._errors = errors

    def transform(self, values: list[str]) -> list[str]:  # noqa: D102
        for each in values:
            if each in self._errors:
                raise self._errors[each](f"cannot compute {each}")
        return values


async def test_exceptions_are_reported_by_type_and_clients_get_the_type() -> None:
    """Once for each time that one was raised: in the batch, and for the input alone. A refusal is no fault."""
    harness = create_harness(Raising(bad=KeyError, refused=InputRefusedError))
    await harness.answer("bad", "good", "refused")
    assert harness.outputs == {"good": "good"}
    assert harness.messages == {
        "bad": "The model failed on this input (KeyError): the worker's log has the traceback.",
        "refused": "cannot compute refused",
    }
    assert set(harness.errors) == {"KeyError"}
    assert sum(result.num_outputs for result in harness.results) == 1


@pytest.mark.parametrize("method", ["preprocess", "transform"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
async def test_an_input_that_ends_the_program_fails_alone(method: str, error: type[BaseException]) -> None:
    """The engine lives: its other inputs have their outputs."""
    harness = create_harness(Passing(method, error, bad=1_000))
    await harness.answer("bad", "good")
    assert harness.outputs == {"good": "good"}
    assert harness.messages == {
        "bad": f"The model failed on this input ({error.__name__}): the worker's log has the traceback."
    }


async def test_clients_get_the_message_only_if_that_is_set() -> None:
    """It may quote the input."""
    harness = create_harness(Raising(bad=ValueError), messages="client")
    await harness.answer("bad")
    assert harness.messages == {"bad": "The model failed on this input (ValueError: cannot compute bad)."}


class Passing:
    """Raises an error for some inputs the first times that it gets them.

    Args:
        method: in which method.
        error: the class of the error.
        times: how often, by input.
    """

    retry_on = (TimeoutError,)

    def __init__(self, method: str, error: type[BaseException] = TimeoutError, /, **times: int) -> None:
        self._error = error
        self._times = times
        self._method = method
        self.calls: list[str] = []

    def _compute(self, method: str, values: list[str]) -> None:
        if method != self._method:
            return
        self.calls += values
        for each in values:
            if self._times.get(each, 0) > 0:
                self._times[each] -= 1
                raise self._error

    def preprocess_input(self, value: str) -> str:  # noqa: D102
        self._compute("preprocess_input", [value])
        return value

    def preprocess(self, inputs: list[str]) -> list[str]:  # noqa: D102
        self._compute("preprocess", inputs)
        return inputs

    def transform(self, batch: list[str]) -> list[str]:  # noqa: D102
        self._compute("transform", batch)
        return batch


@pytest.mark.parametrize("method", ["preprocess_input", "preprocess", "transform"])
async def test_an_input_runs_again_after_an_exception_that_passes(method: str) -> None:
    """Its neighbours have their outputs, and it has one as soon as the exception has passed."""
    function = Passing(method, away=2)
    harness = create_harness(function)
    await harness.answer("here", "away", "there")
    assert harness.outputs == {each: each for each in ("here", "away", "there")}
    assert len(harness.errors) == 2
    assert function.calls.count("away") == 3


@pytest.mark.parametrize("method", ["preprocess_input", "transform"])
async def test_an_input_that_fails_at_each_retry_is_a_dead_letter(method: str) -> None:
    """After the last of them; the client gets the type, and how often it was tried again."""
    function = Passing(method, away=1_000)
    harness = create_harness(function)
    await harness.answer("away", "here")
    assert harness.outputs == {"here": "here"}
    assert harness.messages["away"].endswith(
        "(TimeoutError): the worker's log has the traceback. It was tried again 2 times."
    )
    [failure] = [failure for result in harness.results for failure in result.failures]
    assert failure.dead_after == 3
    assert function.calls.count("away") in (3, 4), "once, twice again, and perhaps in a batch with the other"


async def test_no_retry_is_waited_for_that_the_deadline_would_cut_off() -> None:
    """The client hears of the exception at once, and the entry is no dead letter."""
    harness = create_harness(Passing("transform", away=1), RetryLimits(max_retries=2, backoff_s=LONG_S))
    await harness.answer("away")
    [failure] = [failure for result in harness.results for failure in result.failures]
    assert (failure.message, failure.dead_after) == (
        "The model failed on this input (TimeoutError): the worker's log has the traceback.",
        None,
    )


async def test_only_the_first_failure_of_an_input_is_no_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the retry begins, in its thread, before the first failure is reported."""

    def call_at_once(_calls: DelayedCalls, _delay_s: float, function: partial[None]) -> None:
        [task] = function.args
        num_retries = task.num_retries
        threading.Thread(target=function, daemon=True).start()
        while task.num_retries == num_retries:
            time.sleep(0.001)

    monkeypatch.setattr(DelayedCalls, "call_after", call_at_once)
    harness = create_harness(Passing("preprocess_input", away=2))
    await harness.answer("away")
    assert sorted(result.is_retry for result in harness.results if result.errors) == [False, True]


async def test_an_entry_that_is_dropped_is_not_tried_again() -> None:
    """It needs no answer any more."""
    function = Passing("transform", away=1)
    harness = create_harness(function, RetryLimits(max_retries=2, backoff_s=0.5))
    harness.add("away")
    await wait_until(lambda: harness.errors == ["TimeoutError"], "it failed")
    harness.pipeline.drop(["away"])
    await wait_until(_after(0.6), "its retry would have come")
    assert (function.calls, harness.outputs, harness.messages) == (["away"], {}, {})


def _after(seconds: float) -> Callable[[], bool]:
    """Returns a condition that holds after some time."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


class Greedy:
    """A function that has no memory for one input, and otherwise returns the size of its batch."""

    def transform(self, values: list[object]) -> list[int]:
        """Raises MemoryError if an input is "much"."""
        if "much" in values:
            raise MemoryError
        return [len(values)] * len(values)


async def test_an_input_without_memory_does_not_make_batches_smaller() -> None:
    """It fails alone, and the limit is what it was before: a client could slow down all others for good."""
    harness = create_harness(Greedy())
    await harness.answer("much")
    assert harness.errors == ["MemoryError", "MemoryError"]
    assert harness.results[-1].max_batch_tokens == LIMITS.max_tokens
