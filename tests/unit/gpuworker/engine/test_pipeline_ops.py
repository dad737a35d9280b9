"""The engine's pipeline where entries ask for something else than a vector for each input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from gpuworker.policy.batching import Limits
from gpuworker.engine.work import Work
from shared.codec import encode_ids
from shared.messages import DECODE, EMBED_ALL, TOKENIZE, Options
from tests.unit.gpuworker.engine.scripted import Line, Scripted, vector_of, work
from tests.waiting import wait_until


@pytest.fixture
def line() -> Iterator[Line]:
    """A pipeline that runs nothing before it is set free, with a first batch that waits for that."""
    backend = Scripted()
    backend.free.clear()
    line = Line(backend, Limits(max_size=16, max_tokens=1_000))
    line.add(work("first"))
    yield line
    backend.free.set()


def asking(op: str, key: str, *texts: str, options: Options | None = None) -> Work:
    """Returns an entry that asks for this."""
    return replace(work(key, *texts), op=op, options=options or Options())


async def answered(line: Line, number: int) -> None:
    """Waits until so many entries are."""
    await wait_until(lambda: len(line.answers) == number, f"{number} are answered, of {line.answers}")


async def test_vectors_of_tokens_beside_those_of_texts(line: Line) -> None:
    """The same text for both is two rows; each entry has what it asked for, and its batch is measured once."""
    await wait_until(lambda: line.backend.batches == [["first"]], "the first batch runs")
    line.add(work("one", "abc", "d"), asking(EMBED_ALL, "all", "abc", "de"), work("other", "abc"))
    line.backend.free.set()
    await answered(line, 4)
    done = line.done
    expected = [[vector_of(each) for each in text] for text in ("abc", "de")]
    for row, rows in zip(done["all"].rows, expected, strict=True):
        assert row is not None
        assert np.array_equal(row, np.asarray(rows, dtype=np.float32))
    for key, texts in (("one", ("abc", "d")), ("other", ("abc",))):
        found = np.asarray(done[key].rows)
        assert np.array_equal(found, np.asarray([vector_of(each) for each in texts], dtype=np.float32))
    [ran] = [each for each in line.rans if any(work.key == "all" for work in each.done)]
    assert (ran.size, ran.inputs, len(ran.done)) == (4, 5, 3)


async def test_a_batch_of_both_fails_only_what_is_to_blame(line: Line) -> None:
    """A text that cannot be run takes its own entry with it, whatever that asked for."""
    await wait_until(lambda: line.backend.batches == [["first"]], "the first batch runs")
    line.add(work("one", "a"), asking(EMBED_ALL, "bad", "!run"), asking(EMBED_ALL, "good", "b"), work("two", "!run"))
    line.backend.free.set()
    await answered(line, 5)
    assert sorted(line.done) == ["first", "good", "one"]
    assert line.failed == {"bad": "input_failed", "two": "input_failed"}


async def test_a_tokenizers_work_waits_for_no_batch(line: Line) -> None:
    """The device is held up all the while."""
    await wait_until(lambda: line.backend.batches == [["first"]], "the first batch runs")
    line.add(
        asking(TOKENIZE, "tokens", "ab", options=Options(prompt_name="q")),
        replace(work("text"), op=DECODE, inputs=[encode_ids([104, 105]), encode_ids([33])]),
        work("later", "c"),
    )
    await answered(line, 2)
    [shown] = line.done["tokens"].values or []
    assert [each["text"] for each in json.loads(shown)] == list("q: ab")
    assert line.done["tokens"].tokens == [len("q: ab")]
    assert line.done["text"].values == [b'"hi"', b'"!"']
    assert line.begun == ["first", "tokens", "text"]  # so that an engine that dies of them is blamed for it
    line.backend.free.set()
    await answered(line, 4)


async def test_what_nobody_waits_for_is_not_read(line: Line) -> None:
    """Whether it was dropped, or its deadline has passed."""
    await wait_until(lambda: line.backend.batches == [["first"]], "the first batch runs")
    late = replace(work("late", "a", timeout_s=-1.0), op=TOKENIZE)
    line.add(late, asking(TOKENIZE, "fine", "a"))
    await answered(line, 2)
    assert line.failed == {"late": "deadline_exceeded"}
    assert line.begun == ["first", "fine"]
    line.backend.free.set()


async def test_what_a_tokenizer_cannot_do_fails_alone(line: Line) -> None:
    """With the code of who is to blame."""
    await wait_until(lambda: line.backend.batches == [["first"]], "the first batch runs")
    line.add(
        asking(TOKENIZE, "broken", "!token"),
        asking(TOKENIZE, "no prompt", "a", options=Options(prompt_name="missing")),
        asking(DECODE, "no ids", "a"),
        asking(TOKENIZE, "fine", "a"),
    )
    await answered(line, 4)
    assert line.failed == {"broken": "input_failed", "no prompt": "invalid_request", "no ids": "invalid_request"}
    assert list(line.done) == ["fine"]
    line.backend.free.set()
