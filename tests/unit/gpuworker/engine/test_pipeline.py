"""The engine's pipeline with a model that does as the test says: what it runs together, and what it answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from gpuworker.policy.batching import Limits
from gpuworker.engine.failures import is_out_of_memory
from tests.unit.gpuworker.engine.scripted import Line, Scripted, right, work
from tests.waiting import wait_until

MakeLine = Callable[..., Line]
LIMITS = Limits(max_size=8, max_tokens=1_000)


@pytest.fixture
def make_line() -> Iterator[MakeLine]:
    """Makes pipelines; whatever they still hold up is let go after the test, so that no thread waits for ever."""
    lines: list[Line] = []

    def make(limits: Limits = LIMITS, *, held: bool = False, runners: int = 1, ahead: bool = True) -> Line:
        backend = Scripted(runners=runners, ahead=ahead)
        if held:
            backend.free.clear()
        lines.append(Line(backend, limits))
        return lines[-1]

    yield make
    for line in lines:
        line.backend.free.set()


async def busy(line: Line) -> None:
    """Has the held pipeline run one entry, named `first`, that goes on until it is set free."""
    line.add(work("first"))
    await wait_until(lambda: line.backend.batches == [["first"]], "the first batch runs")


async def answered(line: Line, number: int) -> None:
    """Waits until so many entries have come back, and sees that none came twice."""
    await wait_until(lambda: len(line.answers) >= number, f"{number} entries are answered, of {line.answers}")
    assert len(set(line.answers)) == len(line.answers)


async def test_an_entry_of_many_inputs_comes_back_whole_and_in_order(make_line: MakeLine) -> None:
    """Its inputs may go into several batches, sorted by length; its rows are in its own order."""
    line = make_line(Limits(max_size=3, max_tokens=1_000))
    texts = [("x" * (17 * i % 23 + 1)) + str(i) for i in range(20)]
    line.add(work("long", *texts), work("short", "a"))
    await answered(line, 2)
    assert line.failed == {}
    assert all(right(each) for each in line.done.values())
    assert len(line.backend.batches) >= 7
    assert sum(ran.size for ran in line.rans) == 21


async def test_inputs_of_many_entries_share_a_batch(make_line: MakeLine) -> None:
    """What arrives while a batch runs makes the next one."""
    line = make_line(held=True)
    await busy(line)
    line.add(*(work(f"e{i}") for i in range(5)))
    line.backend.free.set()
    await answered(line, 6)
    assert [len(batch) for batch in line.backend.batches] == [1, 5]
    assert [each.size for each in line.rans] == [1, 5]
    assert all(right(each) for each in line.done.values())


@pytest.mark.parametrize("fault", ["!run", "!collate"])
async def test_an_error_in_a_batch_fails_its_cause_alone(make_line: MakeLine, fault: str) -> None:
    """The batch is halved until the culprit is by itself; its neighbours get their own vectors."""
    line = make_line(held=True)
    await busy(line)
    line.add(*(work(f"e{i}", f"{i} {fault}" if i in (2, 5) else f"{i} text") for i in range(8)))
    line.backend.free.set()
    await answered(line, 9)
    assert line.failed == {"e2": "input_failed", "e5": "input_failed"}
    assert all(right(each) for each in line.done.values())


async def test_a_model_that_gives_too_few_vectors_is_not_believed(make_line: MakeLine) -> None:
    """Nobody gets a neighbour's vector because one is missing."""
    line = make_line(held=True)
    await busy(line)
    line.add(work("a", "one"), work("b", "!less"), work("c", "two"))
    line.backend.free.set()
    await answered(line, 4)
    assert line.failed == {"b": "input_failed"}
    assert all(right(each) for each in line.done.values())


async def test_one_bad_input_fails_its_whole_entry(make_line: MakeLine) -> None:
    """An entry has one answer, and what else it had to run is not run in vain."""
    line = make_line(Limits(max_size=2, max_tokens=1_000))
    line.add(work("a", "!run", "22222", "333333", "4444444"), work("b", "55555555"))
    await answered(line, 2)
    assert line.failed == {"a": "input_failed"}
    assert right(line.done["b"])


async def test_a_text_that_cannot_be_tokenized_fails_its_entry_alone(make_line: MakeLine) -> None:
    """Those that are tokenized in the same call are run."""
    line = make_line()
    line.add(work("a", "one"), work("b", "two", "!token"), work("c", "three"))
    await answered(line, 3)
    assert line.failed == {"b": "input_failed"}
    assert all(right(each) for each in line.done.values())


async def test_the_text_of_an_error_is_not_told(make_line: MakeLine) -> None:
    """A model's message may quote its input: a client is told the kind of error only."""
    line = make_line()
    line.add(work("a", "!run secret"))
    await answered(line, 1)
    messages = [failure.message for ran in line.rans for failure in ran.failed]
    assert messages == ["The model failed on this input (RuntimeError)."]


async def test_what_has_expired_is_answered_and_never_run(make_line: MakeLine) -> None:
    """Also when it expires while another batch runs."""
    line = make_line(held=True)
    await busy(line)
    line.add(work("late", timeout_s=0.05), work("dead", timeout_s=-1.0), work("good"))
    until = time.monotonic() + 0.05
    await wait_until(lambda: time.monotonic() > until, "the deadline has passed")
    line.backend.free.set()
    await answered(line, 4)
    assert line.failed == {"late": "deadline_exceeded", "dead": "deadline_exceeded"}
    assert line.backend.batches == [["first"], ["good"]]


async def test_what_expires_beside_a_full_batch_is_answered_too(make_line: MakeLine) -> None:
    """The batch that is made ahead finds it first, while another runs; it is told at once."""
    line = make_line(Limits(max_size=2, max_tokens=1_000), held=True)
    await busy(line)
    line.add(work("dead", timeout_s=-1.0), work("a"), work("b"))
    await wait_until(lambda: line.failed == {"dead": "deadline_exceeded"}, "the expired entry is answered")
    assert line.backend.batches == [["first"]]
    line.backend.free.set()
    await answered(line, 4)


async def test_a_ready_batch_is_not_run_for_those_who_are_late(make_line: MakeLine) -> None:
    """A deadline that passes while a batch is held ready counts as any other."""
    line = make_line(Limits(max_size=2, max_tokens=1_000), held=True)
    await busy(line)
    line.add(work("late", timeout_s=0.1), work("good"))
    await wait_until(lambda: ["late", "good"] in line.backend.collated, "a batch is ready")
    until = time.monotonic() + 0.1
    await wait_until(lambda: time.monotonic() > until, "the deadline has passed")
    line.backend.free.set()
    await answered(line, 3)
    assert line.failed == {"late": "deadline_exceeded"}
    assert line.backend.batches == [["first"], ["good"]]


async def test_what_is_dropped_is_not_run(make_line: MakeLine) -> None:
    """Nobody waits for it: it is forgotten without an answer, on the shelf and in the ready batch alike."""
    line = make_line(Limits(max_size=2, max_tokens=1_000), held=True)
    await busy(line)
    line.add(*(work(key) for key in ("aa", "bb", "ccc", "ddd", "eeee")))
    await wait_until(lambda: len(line.backend.collated) == 2, "a batch is ready")
    line.pipeline.drop(["aa", "ccc", "eeee", "unknown"])
    line.backend.free.set()
    await answered(line, 3)
    assert set(line.done) == {"first", "bb", "ddd"}
    assert sorted(text for batch in line.backend.batches for text in batch) == ["bb", "ddd", "first"]


async def test_an_entry_that_was_dropped_may_come_again(make_line: MakeLine) -> None:
    """Its first life, still running, neither answers for it nor takes the second with it."""
    line = make_line(held=True)
    await busy(line)
    line.pipeline.drop(["first"])
    line.add(work("first", "again"), work("other", "more"))
    line.backend.free.set()
    await answered(line, 2)
    assert line.done["first"].inputs == ("again",)
    assert all(right(each) for each in line.done.values())


async def test_a_second_life_is_given_up_like_a_first(make_line: MakeLine) -> None:
    """The end of the run that was dropped does not hide the same entry from a drain."""
    line = make_line(Limits(max_size=2, max_tokens=1_000, wait_s=20.0), held=True)
    line.add(work("first", "x", "y"))
    await wait_until(lambda: len(line.backend.batches) == 1, "the first batch runs")
    line.pipeline.drop(["first"])
    line.add(work("first", "again"))
    line.backend.free.set()
    await wait_until(lambda: len(line.rans) == 1, "the run that was dropped has ended")
    assert line.pipeline.drain() == ["first"]
    assert line.answers == []


async def test_a_drain_returns_what_has_not_begun_and_finishes_the_rest(make_line: MakeLine) -> None:
    """An entry of which one input runs is finished to its last; a batch that is only ready is given back."""
    line = make_line(Limits(max_size=2, max_tokens=1_000), held=True)
    line.add(work("half", "11", "22", "333", "444"))
    await wait_until(lambda: len(line.backend.batches) == 1, "the first batch runs")
    line.add(work("a"), work("b"), work("c"))
    assert sorted(line.pipeline.drain()) == ["a", "b", "c"]
    line.backend.free.set()
    await answered(line, 1)
    assert right(line.done["half"])
    assert {text for batch in line.backend.batches for text in batch} == {"11", "22", "333", "444"}


async def test_begun_is_told_before_each_run(make_line: MakeLine) -> None:
    """With the first of its inputs an entry has begun; what waits has not. Between its batches it runs no more."""
    line = make_line(Limits(max_size=2, max_tokens=1_000), held=True)
    line.add(work("half", "11", "22", "333"))
    await wait_until(lambda: len(line.backend.batches) == 1, "the first batch runs")
    line.add(work("next"))
    assert line.begun == ["half"]
    line.backend.free.set()
    await answered(line, 2)
    assert line.begun == ["half", "half", "next"]
    assert [ran.paused for ran in line.rans if ran.size] == [["half"], []]


async def test_a_full_batch_is_ready_while_another_runs(make_line: MakeLine) -> None:
    """The device finds it collated; one only, so that what comes later still has a choice."""
    line = make_line(Limits(max_size=2, max_tokens=1_000), held=True)
    await busy(line)
    line.add(*(work(f"e{i}") for i in range(6)))
    await wait_until(lambda: len(line.backend.collated) == 2, "a batch is ready")
    assert line.backend.batches == [["first"]]
    line.backend.free.set()
    await answered(line, 7)
    assert len(line.backend.collated) == len(line.backend.batches) == 4


async def test_bulk_in_a_ready_batch_makes_way_for_what_came_since(make_line: MakeLine) -> None:
    """It is planned anew: the interactive input goes at once, and all are answered once."""
    line = make_line(Limits(max_size=2, max_tokens=1_000), held=True)
    await busy(line)
    line.add(*(replace(work(f"bulk{i}"), bulk=True) for i in range(4)))
    await wait_until(lambda: len(line.backend.collated) == 2, "a batch of bulk is ready")
    line.add(work("now"))
    line.backend.free.set()
    await answered(line, 6)
    assert "now" in line.backend.batches[1]
    assert sorted(key for batch in line.backend.batches for key in batch) == sorted(line.answers)
    assert all(right(each) for each in line.done.values())


async def test_a_ready_batch_in_which_bulk_has_its_turn_is_run(make_line: MakeLine) -> None:
    """Or those who come and come would keep it waiting."""
    line = make_line(Limits(max_size=1, max_tokens=1_000, bulk_share=0.5), held=True)
    line.add(work("first"), *(replace(work(f"bulk{i}"), bulk=True) for i in range(2)))
    await wait_until(lambda: len(line.backend.collated) == 2, "bulk is ready, since it was passed over")
    line.add(work("now"))
    line.backend.free.set()
    await answered(line, 4)
    assert line.backend.batches[:2] == [["first"], ["bulk0"]]


async def test_what_waits_already_is_made_ready_when_a_run_begins(make_line: MakeLine) -> None:
    """Nothing new has to arrive for it: all came at once, and the second batch is collated beside the first."""
    line = make_line(Limits(max_size=2, max_tokens=1_000), held=True)
    line.add(work("all", *(f"text {i}" for i in range(6))))
    await wait_until(lambda: len(line.backend.collated) == 2, "a batch is ready")
    assert len(line.backend.batches) == 1
    line.backend.free.set()
    await answered(line, 1)


async def test_a_partial_batch_grows_until_the_device_is_free(make_line: MakeLine) -> None:
    """It is not collated before: what arrives meanwhile goes with it."""
    line = make_line(held=True)
    await busy(line)
    for i in range(5):
        line.add(work(f"e{i}"))
    assert line.backend.collated == [["first"]]
    line.backend.free.set()
    await answered(line, 6)
    assert sorted(line.backend.batches[1]) == [f"e{i}" for i in range(5)]


async def test_a_suspect_shares_no_batch(make_line: MakeLine) -> None:
    """Its entry runs by itself, all of its inputs together."""
    line = make_line(held=True)
    await busy(line)
    line.add(work("a"), work("b"), work("suspect", "111", "222", attempts=1))
    line.backend.free.set()
    await answered(line, 4)
    assert line.backend.batches == [["first"], ["a", "b"], ["111", "222"]]


async def test_a_batch_without_memory_is_split_and_later_ones_are_smaller(make_line: MakeLine) -> None:
    """All are answered; the model is told to give memory back, and what ran out is not tried again."""
    line = make_line(Limits(max_size=64, max_tokens=64), held=True)
    line.backend.room = 16
    await busy(line)
    line.add(*(work(f"{i:02}") for i in range(24)))
    line.backend.free.set()
    await answered(line, 25)
    assert all(right(each) for each in line.done.values())
    assert line.failed == {}
    assert line.backend.freed >= 1
    tried = len(line.backend.batches)
    line.add(*(work(f"{i:02}") for i in range(50, 74)))
    await answered(line, 49)
    assert all(sum(map(len, batch)) <= line.backend.room for batch in line.backend.batches[tried:])
    assert line.rans[-1].max_tokens <= line.backend.room


async def test_an_input_for_which_there_is_no_memory_fails_alone(make_line: MakeLine) -> None:
    """There is nothing left to split."""
    line = make_line(held=True)
    line.backend.room = 16
    await busy(line)
    line.add(work("a"), work("much", "x" * 17), work("b"))
    line.backend.free.set()
    await answered(line, 4)
    assert set(line.failed) == {"much"}
    assert set(line.done) == {"first", "a", "b"}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("a memory of an allocation"), False),
    ],
)
def test_what_is_out_of_memory(error: Exception, expected: bool) -> None:
    """As Python, torch on a GPU, and torch on a CPU say it."""
    assert is_out_of_memory(error) is expected


async def test_suspects_run_last_and_with_nothing_beside_them(make_line: MakeLine) -> None:
    """Two runners run all else at once, then the suspects one by one, the least accused first, each entry whole.

    What ran before has been told by then: an engine that dies of a suspect is not taken to have died of it.
    """
    line = make_line(Limits(max_size=1, max_tokens=1_000), held=True, runners=2, ahead=False)
    await busy(line)
    line.add(work("second"))
    await wait_until(lambda: len(line.backend.batches) == 2, "the second runner runs")
    line.add(*(work(f"e{i}") for i in range(4)), work("twice", "one", "two", attempts=2), work("once", attempts=1))
    line.backend.free.set()
    await answered(line, 8)
    assert (["second"], ["first"]) in line.backend.met
    assert not any({"one", "two", "once"} & {*mine, *theirs} for mine, theirs in line.backend.met)
    assert line.backend.batches[-2:] == [["once"], ["one", "two"]]
    assert line.settled == 2


async def test_what_comes_while_a_suspect_runs_waits_for_its_end(make_line: MakeLine) -> None:
    """Then it runs, on as many runners as there are."""
    line = make_line(Limits(max_size=1, max_tokens=1_000), held=True, runners=2, ahead=False)
    line.add(work("suspect", attempts=1))
    await wait_until(lambda: line.backend.batches == [["suspect"]], "the suspect runs")
    line.add(*(work(f"e{i}") for i in range(6)))
    line.backend.free.set()
    await answered(line, 7)
    assert not any("suspect" in theirs for _, theirs in line.backend.met)
    assert line.backend.alone[0] is True


async def test_a_wait_is_from_the_first_input_to_its_end(make_line: MakeLine) -> None:
    """An idle engine waits so long for more, and no longer."""
    line = make_line(Limits(max_size=8, max_tokens=1_000, wait_s=0.3))
    began = time.monotonic()
    line.add(work("a"))
    line.add(work("b"))
    await answered(line, 2)
    assert [sorted(batch) for batch in line.backend.batches] == [["a", "b"]]
    assert 0.3 <= (line.done["a"].began or 0.0) - began < 1.0


async def test_a_full_batch_ends_the_wait(make_line: MakeLine) -> None:
    """There is nothing left to wait for."""
    line = make_line(Limits(max_size=2, max_tokens=1_000, wait_s=20.0))
    line.add(work("a"))
    line.add(work("b"))
    await answered(line, 2)
    assert [sorted(batch) for batch in line.backend.batches] == [["a", "b"]]
    assert line.rans[0].full


async def test_measures_tell_size_tokens_and_padding(make_line: MakeLine) -> None:
    """A batch is as long as its longest input, times its number."""
    line = make_line(held=True)
    await busy(line)
    line.add(work("a", "1", "333", "55555"))
    line.backend.free.set()
    await answered(line, 2)
    ran = line.rans[-1]
    assert (ran.size, ran.tokens, ran.padded, ran.full) == (3, 9, 15, False)
    assert ran.seconds >= 0


async def test_two_runners_run_two_batches_at_once(make_line: MakeLine) -> None:
    """On a CPU each has cores of its own; what arrives goes to whoever is free, and what is left waits for either."""
    line = make_line(Limits(max_size=2, max_tokens=1_000), held=True, runners=2, ahead=False)
    await busy(line)
    line.add(*(work(f"e{i}") for i in range(5)))
    await wait_until(lambda: len(line.backend.batches) == 2, "the second runner runs")
    assert len(line.backend.batches[1]) == 2
    assert len(line.backend.collated) == 2, "nothing is made ready"
    line.backend.free.set()
    await answered(line, 6)
    assert all(right(each) for each in line.done.values())
    assert sorted(text for batch in line.backend.batches for text in batch) == sorted(line.done)


async def test_a_batch_has_the_device_to_itself_when_nothing_else_runs_or_waits(make_line: MakeLine) -> None:
    """It may use all cores then; with another beside it or behind it, its own share."""
    line = make_line(Limits(max_size=2, max_tokens=1_000), held=True, runners=2, ahead=False)
    await busy(line)
    line.add(work("second"))
    await wait_until(lambda: len(line.backend.batches) == 2, "the second runner runs")
    line.backend.free.set()
    await answered(line, 2)
    assert line.backend.alone == [True, False]
    line.add(work("many", "1", "2", "3"))
    await answered(line, 3)
    assert line.backend.alone[2] is False


async def test_identical_texts_are_computed_once(make_line: MakeLine) -> None:
    """Those that wait at the same time share a row, whatever entry they are of; each gets its answer."""
    line = make_line(held=True)
    await busy(line)
    line.add(work("a", "same", "other", "same"), work("b", "same"), work("c", "more"))
    line.backend.free.set()
    await answered(line, 4)
    assert sorted(line.backend.batches[1]) == ["more", "other", "same"]
    assert all(right(each) for each in line.done.values())
    assert (line.rans[1].size, line.rans[1].inputs) == (3, 5)
    assert {work.key for work in line.rans[1].done} == {"a", "b", "c"}


async def test_identical_texts_fail_together(make_line: MakeLine) -> None:
    """A text that the model cannot run fails every entry that holds it, and no other."""
    line = make_line(held=True)
    await busy(line)
    line.add(work("a", "!run"), work("b", "!run"), work("c", "good"))
    line.backend.free.set()
    await answered(line, 4)
    assert line.failed == {"a": "input_failed", "b": "input_failed"}


async def test_of_identical_texts_the_expired_alone_is_answered_late(make_line: MakeLine) -> None:
    """They share a row and no deadline; one that is dropped leaves the row to the others."""
    line = make_line(held=True)
    await busy(line)
    line.add(work("dead", "same", timeout_s=-1.0), work("gone", "same"), work("good", "same"))
    line.pipeline.drop(["gone"])
    line.backend.free.set()
    await answered(line, 3)
    assert line.failed == {"dead": "deadline_exceeded"}
    assert set(line.done) == {"first", "good"}
    assert line.backend.batches == [["first"], ["same"]]


async def test_a_suspect_shares_no_row(make_line: MakeLine) -> None:
    """Others with the same text do not go down with it."""
    line = make_line(held=True)
    await busy(line)
    line.add(work("suspect", "same", attempts=1), work("good", "same"))
    line.backend.free.set()
    await answered(line, 3)
    assert line.backend.batches[1:] == [["same"], ["same"]]
