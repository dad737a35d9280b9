"""A suspect is alone wherever it, or another, may take the engine with it: in batches, and in `preprocess`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from gpuworker.policy.batching import Limits
from gpuworker.engine.work import Work
from shared.messages import PLAIN, PREDICT, Input, Options
from tests.unit.gpuworker.engine.scripted import LONG_S, Line, Scripted, Text, work
from tests.waiting import wait_until


@dataclass
class Function(Scripted):
    """A user's own function: `read` lists what it preprocesses, each of which waits until it is free to."""

    read: list[str] = field(default_factory=list)
    reads: threading.Event = field(default_factory=threading.Event)

    def tokenize(self, inputs: Sequence[Input], options: Options = PLAIN) -> list[Text]:
        """Notes them."""
        self.read += [str(each) for each in inputs]
        assert self.reads.wait(LONG_S)
        return super().tokenize(inputs, options)


def asked(key: str, attempts: int = 0) -> Work:
    """Returns an entry for a function."""
    return replace(work(key, attempts=attempts), op=PREDICT)


def adding(line: Line, entry: Work) -> threading.Thread:
    """Brings an entry in a thread of its own, which may have to wait."""
    thread = threading.Thread(target=line.add, args=(entry,), daemon=True)
    thread.start()
    return thread


@pytest.fixture
def function() -> Function:
    """One that reads at once, and whose batches are held."""
    found = Function(ops=frozenset((PREDICT,)))
    found.reads.set()
    found.free.clear()
    return found


async def test_nothing_is_read_while_a_suspect_runs(function: Function) -> None:
    """Whoever was read beside it would be accused with it."""
    line = Line(function, Limits(8, 1_000))
    line.add(asked("suspect", attempts=1))
    await wait_until(lambda: function.batches == [["suspect"]], "the suspect runs")
    other = adding(line, asked("other"))
    other.join(0.05)
    assert function.read == ["suspect"]
    function.free.set()
    await wait_until(lambda: len(line.answers) == 2, "both are answered")
    assert function.read == ["suspect", "other"]


async def test_a_suspect_is_read_when_nothing_runs(function: Function) -> None:
    """And nothing begins meanwhile."""
    line = Line(function, Limits(8, 1_000))
    line.add(asked("first"))
    await wait_until(lambda: function.batches == [["first"]], "a batch runs")
    suspect = adding(line, asked("suspect", attempts=1))
    suspect.join(0.05)
    assert function.read == ["first"]
    function.reads.clear()
    function.free.set()
    await wait_until(lambda: function.read == ["first", "suspect"], "the suspect is read")
    assert line.answers == ["first"]
    function.reads.set()
    await wait_until(lambda: len(line.answers) == 2, "both are answered")


async def test_others_are_read_while_batches_run(function: Function) -> None:
    """That is what overlaps."""
    line = Line(function, Limits(8, 1_000))
    line.add(asked("first"))
    await wait_until(lambda: function.batches == [["first"]], "a batch runs")
    line.add(asked("second"))
    assert function.read == ["first", "second"]
    function.free.set()
    await wait_until(lambda: len(line.answers) == 2, "both are answered")
