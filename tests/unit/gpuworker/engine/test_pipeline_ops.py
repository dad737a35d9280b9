"""The engine's pipeline with entries of operations other than one vector for each input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from gpuworker.engine.work import EntryTask
from gpuworker.policy.limits import Limits
from shared.codec import encode_ids
from shared.messages import DECODE, EMBED_ALL, TOKENIZE, Options
from tests.unit.gpuworker.engine.scripted import PipelineHarness, ScriptedBackend, entry_task, vector_of
from tests.waiting import wait_until


@pytest.fixture
def harness() -> Iterator[PipelineHarness]:
    """A pipeline whose first batch runs until `may_run` is set."""
    backend = ScriptedBackend()
    backend.may_run.clear()
    harness = PipelineHarness(backend, Limits(max_size=16, max_tokens=1_000))
    harness.add(entry_task("first"))
    yield harness
    backend.may_run.set()


def op_task(op: str, key: str, *texts: str, options: Options | None = None) -> EntryTask:
    """Returns an entry with this operation."""
    return replace(entry_task(key, *texts), op=op, options=options or Options())


async def wait_until_answered(harness: PipelineHarness, number: int) -> None:
    """Waits until this number of entries is answered."""
    await wait_until(lambda: len(harness.answered_keys) == number, f"{number} are answered, of {harness.answered_keys}")


async def test_vectors_of_tokens_and_of_texts_run_in_one_batch(harness: PipelineHarness) -> None:
    """The same text for both operations is two rows; each entry has its outputs, and the batch is measured once."""
    await wait_until(lambda: harness.backend.batches == [["first"]], "the first batch runs")
    harness.add(entry_task("one", "abc", "d"), op_task(EMBED_ALL, "all", "abc", "de"), entry_task("other", "abc"))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)
    done = harness.completed
    expected = [[vector_of(each) for each in text] for text in ("abc", "de")]
    for row, rows in zip(done["all"].outputs, expected, strict=True):
        assert row is not None
        assert np.array_equal(row, np.asarray(rows, dtype=np.float32))
    for key, texts in (("one", ("abc", "d")), ("other", ("abc",))):
        found = np.asarray(done[key].outputs)
        assert np.array_equal(found, np.asarray([vector_of(each) for each in texts], dtype=np.float32))
    [result] = [each for each in harness.results if any(task.key == "all" for task in each.completed)]
    assert (result.size, result.inputs, len(result.completed)) == (4, 5, 3)


async def test_each_entry_knows_which_of_its_inputs_were_cut(harness: PipelineHarness) -> None:
    """Also if the inputs of several entries were tokenized in one call, and for vectors of tokens."""
    await wait_until(lambda: harness.backend.batches == [["first"]], "the first batch runs")
    harness.add(
        entry_task("some", "a", "!long", "b", "!long two"),
        entry_task("none", "c", "d"),
        op_task(EMBED_ALL, "all", "!long"),
    )
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)
    cut = {key: list(task.truncated) for key, task in harness.completed.items()}
    assert cut == {"first": [], "some": [1, 3], "none": [], "all": [0]}


async def test_a_failure_names_the_input_that_is_too_long(harness: PipelineHarness) -> None:
    """By its index in its entry, wherever it was in the tokenizer's call; the other entries of the call run."""
    options = Options(truncate="no")
    harness.add(
        replace(entry_task("fine", "a", "b"), options=options),
        replace(entry_task("bad", "c", "d", "!long"), options=options),
        entry_task("cut", "!long"),
    )
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)
    [failure] = [each for result in harness.results for each in result.failures]
    assert (failure.key, failure.code, failure.input_index) == ("bad", "invalid_request", 2)
    assert failure.too_long == (99, 9)
    assert sorted(harness.completed) == ["cut", "fine", "first"]


async def test_in_a_batch_of_both_operations_only_the_cause_fails(harness: PipelineHarness) -> None:
    """A text that cannot be run fails its own entry, whatever operation that has."""
    await wait_until(lambda: harness.backend.batches == [["first"]], "the first batch runs")
    harness.add(
        entry_task("one", "a"),
        op_task(EMBED_ALL, "bad", "!run"),
        op_task(EMBED_ALL, "good", "b"),
        entry_task("two", "!run"),
    )
    harness.backend.may_run.set()
    await wait_until_answered(harness, 5)
    assert sorted(harness.completed) == ["first", "good", "one"]
    assert harness.failures == {"bad": "input_failed", "two": "input_failed"}


async def test_a_tokenizer_operation_waits_for_no_batch(harness: PipelineHarness) -> None:
    """It is answered while the device is busy."""
    await wait_until(lambda: harness.backend.batches == [["first"]], "the first batch runs")
    harness.add(
        op_task(TOKENIZE, "tokens", "ab", options=Options(prompt_name="q")),
        replace(entry_task("text"), op=DECODE, inputs=[encode_ids([104, 105]), encode_ids([33])]),
        entry_task("later", "c"),
    )
    await wait_until_answered(harness, 2)
    [shown] = harness.completed["tokens"].values or []
    assert [each["text"] for each in json.loads(shown)] == list("q: ab")
    assert harness.completed["tokens"].tokens == [len("q: ab")]
    assert harness.completed["text"].values == [b'"hi"', b'"!"']
    assert harness.reports.begun == ["first", "tokens", "text"]  # so that they are suspects if the engine dies of them
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)


async def test_a_tokenizer_operation_does_not_run_after_its_deadline(harness: PipelineHarness) -> None:
    """It fails, and never runs."""
    await wait_until(lambda: harness.backend.batches == [["first"]], "the first batch runs")
    late = replace(entry_task("late", "a", timeout_s=-1.0), op=TOKENIZE)
    harness.add(late, op_task(TOKENIZE, "fine", "a"))
    await wait_until_answered(harness, 2)
    assert harness.failures == {"late": "deadline_exceeded"}
    assert harness.reports.begun == ["first", "fine"]
    harness.backend.may_run.set()


async def test_a_tokenizer_operation_fails_alone(harness: PipelineHarness) -> None:
    """Its code says whether the model or the client is the cause."""
    await wait_until(lambda: harness.backend.batches == [["first"]], "the first batch runs")
    harness.add(
        op_task(TOKENIZE, "broken", "!token"),
        op_task(TOKENIZE, "no prompt", "a", options=Options(prompt_name="missing")),
        op_task(DECODE, "no ids", "a"),
        op_task(TOKENIZE, "fine", "a"),
    )
    await wait_until_answered(harness, 4)
    assert harness.failures == {"broken": "input_failed", "no prompt": "invalid_request", "no ids": "invalid_request"}
    assert list(harness.completed) == ["fine"]
    harness.backend.may_run.set()
