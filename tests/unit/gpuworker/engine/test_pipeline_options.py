"""The engine's pipeline with entries that have options: these apply to each entry, whatever runs beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from gpuworker.engine.work import EntryTask
from gpuworker.policy.limits import Limits
from shared.messages import Options
from tests.unit.gpuworker.engine.scripted import DIM, PipelineHarness, ScriptedBackend, entry_task, vector_of
from tests.waiting import wait_until


@pytest.fixture
def harness() -> Iterator[PipelineHarness]:
    """A pipeline around a model that normalizes, whose first batch runs until `may_run` is set."""
    backend = ScriptedBackend(normalizes=True)
    backend.may_run.clear()
    harness = PipelineHarness(backend, Limits(max_size=16, max_tokens=1_000))
    harness.add(entry_task("first"))
    yield harness
    backend.may_run.set()


def task_with(options: Options, key: str, *texts: str) -> EntryTask:
    """Returns an entry with these options."""
    return replace(entry_task(key, *texts), options=options)


def later_texts(harness: PipelineHarness) -> list[str]:
    """Returns the texts that ran after the first batch."""
    return sorted(text for batch in harness.backend.batches[1:] for text in batch)


async def run(harness: PipelineHarness, *tasks: EntryTask) -> dict[str, EntryTask]:
    """Runs these entries together; returns the completed ones."""
    await wait_until(lambda: harness.backend.batches == [["first"]], "the first batch runs")
    harness.add(*tasks)
    harness.backend.may_run.set()
    await wait_until(
        lambda: len(harness.answered_keys) == 1 + len(tasks), f"all are answered, of {harness.answered_keys}"
    )
    return harness.completed


def has_vectors(task: EntryTask, *expected: np.ndarray) -> bool:
    """Returns whether an entry has these vectors."""
    return np.allclose(np.asarray(task.outputs), np.asarray(expected), atol=1e-6)


def unit(text: str) -> np.ndarray:
    """Returns the vector of a text, of length 1."""
    vector = np.asarray(vector_of(text), dtype=np.float32)
    return vector / np.linalg.norm(vector)


async def test_one_text_with_two_prompts_is_two(harness: PipelineHarness) -> None:
    """Entries with the same prompt share a row, whatever their other options are."""
    completed = await run(
        harness,
        entry_task("plain", "a"),
        entry_task("plain too", "a"),
        task_with(Options(prompt_name="query"), "query", "a"),
        task_with(Options(prompt_name="query", dimensions=2), "query cut", "a"),
        task_with(Options(prompt_name="document"), "document", "a"),
    )
    assert later_texts(harness) == ["a", "document: a", "query: a"]
    assert all(has_vectors(completed[key], unit("a")) for key in ("plain", "plain too"))
    assert has_vectors(completed["query"], unit("query: a"))
    assert has_vectors(completed["document"], unit("document: a"))
    cut = unit("query: a")[:2]
    assert has_vectors(completed["query cut"], cut / np.linalg.norm(cut))


async def test_a_raw_vector_beside_others(harness: PipelineHarness) -> None:
    """The batch runs once, without the normalization; the other entries get normalized vectors."""
    completed = await run(
        harness,
        task_with(Options(normalize=False), "raw", "a", "b"),
        entry_task("plain", "a"),
        task_with(Options(normalize=True), "unit", "a"),
    )
    assert later_texts(harness) == ["a", "b"]
    assert has_vectors(completed["raw"], np.asarray(vector_of("a")), np.asarray(vector_of("b")))
    assert has_vectors(completed["plain"], unit("a"))
    assert has_vectors(completed["unit"], unit("a"))


async def test_options_that_the_model_does_not_have_are_refused(harness: PipelineHarness) -> None:
    """The entry fails as an invalid request, with a reason; the others do not fail."""
    completed = await run(
        harness,
        entry_task("plain", "a"),
        task_with(Options(prompt_name="missing"), "prompt", "a"),
        task_with(Options(dimensions=DIM + 1), "wide", "a"),
        task_with(Options(dimensions=DIM), "all", "a"),
    )
    assert harness.failures == {"prompt": "invalid_request", "wide": "invalid_request"}
    messages = {each.key: each.message for result in harness.results for each in result.failures}
    assert messages == {
        "prompt": "there is no such prompt",
        "wide": "dimensions: the vectors of this model have 4, not 5.",
    }
    assert has_vectors(completed["plain"], unit("a"))
    assert has_vectors(completed["all"], unit("a"))


async def test_tokens_are_counted_for_each_entry(harness: PipelineHarness) -> None:
    """The prompt counts, and so does each input, although the same text runs once."""
    completed = await run(harness, entry_task("two", "abc", "abc"), task_with(Options(prompt_name="q"), "query", "abc"))
    assert (completed["two"].tokens, completed["query"].tokens) == ([3, 3], [len("q: abc")])


async def test_entries_with_the_same_tokens_share_a_row(harness: PipelineHarness) -> None:
    """Options that change only the vector do not separate them."""
    completed = await run(
        harness,
        entry_task("plain", "a"),
        task_with(Options(), "explicit", "a"),
        task_with(Options(dimensions=2), "cut", "a"),
    )
    assert later_texts(harness) == ["a"]
    assert has_vectors(completed["explicit"], unit("a"))
