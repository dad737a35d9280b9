"""The engine's pipeline where entries ask for something: each gets what it asked for, whatever runs beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from gpuworker.policy.batching import Limits
from gpuworker.engine.work import Work
from shared.messages import Options
from tests.unit.gpuworker.engine.scripted import DIM, Line, Scripted, vector_of, work
from tests.waiting import wait_until


@pytest.fixture
def line() -> Iterator[Line]:
    """A pipeline around a model that normalizes; it runs nothing before it is set free."""
    backend = Scripted(normalizes=True)
    backend.free.clear()
    line = Line(backend, Limits(max_size=16, max_tokens=1_000))
    line.add(work("first"))
    yield line
    backend.free.set()


def asking(options: Options, key: str, *texts: str) -> Work:
    """Returns an entry with these options."""
    return replace(work(key, *texts), options=options)


def ran(line: Line) -> list[str]:
    """Returns the texts that ran behind the first."""
    return sorted(text for batch in line.backend.batches[1:] for text in batch)


async def run(line: Line, *works: Work) -> dict[str, Work]:
    """Has these entries run together; returns those with vectors."""
    await wait_until(lambda: line.backend.batches == [["first"]], "the first batch runs")
    line.add(*works)
    line.backend.free.set()
    await wait_until(lambda: len(line.answers) == 1 + len(works), f"all are answered, of {line.answers}")
    return line.done


def close(found: Work, *expected: np.ndarray) -> bool:
    """Whether an entry has these vectors."""
    return np.allclose(np.asarray(found.rows), np.asarray(expected), atol=1e-6)


def unit(text: str) -> np.ndarray:
    """Returns what the model makes of a text."""
    vector = np.asarray(vector_of(text), dtype=np.float32)
    return vector / np.linalg.norm(vector)


async def test_one_text_with_two_prompts_is_two(line: Line) -> None:
    """Those with the same prompt share a row, whatever else they ask for."""
    done = await run(
        line,
        work("plain", "a"),
        work("plain too", "a"),
        asking(Options(prompt_name="query"), "query", "a"),
        asking(Options(prompt_name="query", dimensions=2), "query cut", "a"),
        asking(Options(prompt_name="document"), "document", "a"),
    )
    assert ran(line) == ["a", "document: a", "query: a"]
    assert all(close(done[key], unit("a")) for key in ("plain", "plain too"))
    assert close(done["query"], unit("query: a"))
    assert close(done["document"], unit("document: a"))
    cut = unit("query: a")[:2]
    assert close(done["query cut"], cut / np.linalg.norm(cut))


async def test_a_raw_vector_beside_others(line: Line) -> None:
    """The batch runs once, without the last step, and who did not object gets it."""
    done = await run(
        line,
        asking(Options(normalize=False), "raw", "a", "b"),
        work("plain", "a"),
        asking(Options(normalize=True), "unit", "a"),
    )
    assert ran(line) == ["a", "b"]
    assert close(done["raw"], np.asarray(vector_of("a")), np.asarray(vector_of("b")))
    assert close(done["plain"], unit("a"))
    assert close(done["unit"], unit("a"))


async def test_what_the_model_does_not_do_is_refused(line: Line) -> None:
    """The entry fails as the client's fault, with a reason; its neighbours do not."""
    done = await run(
        line,
        work("plain", "a"),
        asking(Options(prompt_name="missing"), "prompt", "a"),
        asking(Options(dimensions=DIM + 1), "wide", "a"),
        asking(Options(dimensions=DIM), "all", "a"),
    )
    assert line.failed == {"prompt": "invalid_request", "wide": "invalid_request"}
    messages = {each.key: each.message for ran in line.rans for each in ran.failed}
    assert messages == {
        "prompt": "there is no such prompt",
        "wide": "dimensions: the vectors of this model have 4, not 5.",
    }
    assert close(done["plain"], unit("a"))
    assert close(done["all"], unit("a"))


async def test_tokens_are_counted_for_each_entry(line: Line) -> None:
    """What the model reads, a prompt too; and each input counts, though the same text ran once."""
    done = await run(line, work("two", "abc", "abc"), asking(Options(prompt_name="q"), "query", "abc"))
    assert (done["two"].tokens, done["query"].tokens) == ([3, 3], [len("q: abc")])


async def test_entries_that_are_read_alike_share_a_row(line: Line) -> None:
    """What is done to the vector afterwards does not keep them apart."""
    done = await run(
        line, work("plain", "a"), asking(Options(), "said", "a"), asking(Options(dimensions=2), "cut", "a")
    )
    assert ran(line) == ["a"]
    assert close(done["said"], unit("a"))
