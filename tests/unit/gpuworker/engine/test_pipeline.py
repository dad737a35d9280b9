"""The engine's pipeline with a scripted model: which inputs run together, and how entries are answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gpuworker.policy.limits import Limits
from tests.unit.gpuworker.engine.scripted import PipelineHarness, ScriptedBackend, entry_task, has_right_vectors
from tests.waiting import wait_until

CreateHarness = Callable[..., PipelineHarness]
LIMITS = Limits(max_size=8, max_tokens=1_000)


@pytest.fixture
def create_harness() -> Iterator[CreateHarness]:
    """Creates pipelines. Batches that are still held run after the test, so that no thread waits for ever."""
    harnesses: list[PipelineHarness] = []

    def make(
        limits: Limits = LIMITS, *, held: bool = False, runners: int = 1, prepares_ahead: bool = True
    ) -> PipelineHarness:
        backend = ScriptedBackend(runners=runners, prepares_ahead=prepares_ahead)
        if held:
            backend.may_run.clear()
        harnesses.append(PipelineHarness(backend, limits))
        return harnesses[-1]

    yield make
    for harness in harnesses:
        harness.backend.may_run.set()


async def busy(harness: PipelineHarness) -> None:
    """Has a held pipeline run one entry, named `first`, which runs until `may_run` is set."""
    harness.add(entry_task("first"))
    await wait_until(lambda: harness.backend.batches == [["first"]], "the first batch runs")


async def wait_until_answered(harness: PipelineHarness, number: int) -> None:
    """Waits until this number of entries is answered, and checks that none was answered twice."""
    await wait_until(
        lambda: len(harness.answered_keys) >= number, f"{number} entries are answered, of {harness.answered_keys}"
    )
    assert len(set(harness.answered_keys)) == len(harness.answered_keys)


async def test_an_entry_of_many_inputs_is_answered_whole_and_in_order(create_harness: CreateHarness) -> None:
    """Its inputs may run in several batches, sorted by length; its outputs are in its own order."""
    harness = create_harness(Limits(max_size=3, max_tokens=1_000))
    texts = [("x" * (17 * i % 23 + 1)) + str(i) for i in range(20)]
    harness.add(entry_task("long", *texts), entry_task("short", "a"))
    await wait_until_answered(harness, 2)
    assert harness.failures == {}
    assert all(has_right_vectors(each) for each in harness.completed.values())
    assert len(harness.backend.batches) >= 7
    assert sum(result.size for result in harness.results) == 21


async def test_inputs_of_many_entries_share_a_batch(create_harness: CreateHarness) -> None:
    """The inputs that arrive while a batch runs make the next one."""
    harness = create_harness(held=True)
    await busy(harness)
    harness.add(*(entry_task(f"e{i}") for i in range(5)))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 6)
    assert [len(batch) for batch in harness.backend.batches] == [1, 5]
    assert [each.size for each in harness.results] == [1, 5]
    assert all(has_right_vectors(each) for each in harness.completed.values())


@pytest.mark.parametrize("fault", ["!run", "!collate"])
async def test_an_error_in_a_batch_fails_its_cause_alone(create_harness: CreateHarness, fault: str) -> None:
    """The batch is halved until the text that fails is alone; the others get their own vectors."""
    harness = create_harness(held=True)
    await busy(harness)
    harness.add(*(entry_task(f"e{i}", f"{i} {fault}" if i in (2, 5) else f"{i} text") for i in range(8)))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 9)
    assert harness.failures == {"e2": "input_failed", "e5": "input_failed"}
    assert all(has_right_vectors(each) for each in harness.completed.values())


async def test_a_batch_with_too_few_vectors_fails(create_harness: CreateHarness) -> None:
    """No entry gets the vector of another because one is missing."""
    harness = create_harness(held=True)
    await busy(harness)
    harness.add(entry_task("a", "one"), entry_task("b", "!less"), entry_task("c", "two"))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)
    assert harness.failures == {"b": "input_failed"}
    assert all(has_right_vectors(each) for each in harness.completed.values())


async def test_one_bad_input_fails_its_whole_entry(create_harness: CreateHarness) -> None:
    """An entry has one answer, which knows the input at fault, and its other inputs do not run in vain."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000))
    harness.add(entry_task("a", "1", "!run", "333333", "4444444"), entry_task("b", "55555555"))
    await wait_until_answered(harness, 2)
    assert harness.failures == {"a": "input_failed"}
    [failure] = [failure for result in harness.results for failure in result.failures]
    assert failure.input_index == 1
    assert has_right_vectors(harness.completed["b"])


async def test_a_text_that_cannot_be_tokenized_fails_its_entry_alone(create_harness: CreateHarness) -> None:
    """The other entries of the same tokenizer call run."""
    harness = create_harness()
    harness.add(entry_task("a", "one"), entry_task("b", "two", "!token"), entry_task("c", "three"))
    await wait_until_answered(harness, 3)
    assert harness.failures == {"b": "input_failed"}
    assert all(has_right_vectors(each) for each in harness.completed.values())


async def test_the_text_of_an_error_is_not_reported(create_harness: CreateHarness) -> None:
    """A model's message may quote its input: the failure has only the class of the error."""
    harness = create_harness()
    harness.add(entry_task("a", "!run secret"))
    await wait_until_answered(harness, 1)
    messages = [failure.message for result in harness.results for failure in result.failures]
    assert messages == ["The model failed on this input (RuntimeError): the worker's log has the traceback."]


async def test_an_expired_entry_is_answered_and_never_run(create_harness: CreateHarness) -> None:
    """That also holds if it expires while another batch runs."""
    harness = create_harness(held=True)
    await busy(harness)
    harness.add(entry_task("late", timeout_s=0.05), entry_task("dead", timeout_s=-1.0), entry_task("good"))
    until = time.monotonic() + 0.05
    await wait_until(lambda: time.monotonic() > until, "the deadline has passed")
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)
    assert harness.failures == {"late": "deadline_exceeded", "dead": "deadline_exceeded"}
    assert harness.backend.batches == [["first"], ["good"]]


async def test_an_entry_that_expires_beside_a_full_batch_is_answered_too(create_harness: CreateHarness) -> None:
    """The preparer finds it while another batch runs, and reports it at once."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000), held=True)
    await busy(harness)
    harness.add(entry_task("dead", timeout_s=-1.0), entry_task("a"), entry_task("b"))
    await wait_until(lambda: harness.failures == {"dead": "deadline_exceeded"}, "the expired entry is answered")
    assert harness.backend.batches == [["first"]]
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)


async def test_a_ready_batch_runs_without_late_entries(create_harness: CreateHarness) -> None:
    """A deadline that passes while a batch is held ready counts like any other."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000), held=True)
    await busy(harness)
    harness.add(entry_task("late", timeout_s=1.0), entry_task("good"))
    until = time.monotonic() + 1.0
    await wait_until(lambda: ["late", "good"] in harness.backend.collated, "a batch is ready")
    await wait_until(lambda: time.monotonic() > until, "the deadline has passed")
    harness.backend.may_run.set()
    await wait_until_answered(harness, 3)
    assert harness.failures == {"late": "deadline_exceeded"}
    assert harness.backend.batches == [["first"], ["good"]]


async def test_a_dropped_entry_is_not_run(create_harness: CreateHarness) -> None:
    """It is forgotten without an answer, whether it waits or is in the ready batch."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000), held=True)
    await busy(harness)
    harness.add(*(entry_task(key) for key in ("aa", "bb", "ccc", "ddd", "eeee")))
    await wait_until(lambda: len(harness.backend.collated) == 2, "a batch is ready")
    harness.pipeline.drop(["aa", "ccc", "eeee", "unknown"])
    harness.backend.may_run.set()
    await wait_until_answered(harness, 3)
    assert set(harness.completed) == {"first", "bb", "ddd"}
    assert sorted(text for batch in harness.backend.batches for text in batch) == ["bb", "ddd", "first"]


async def test_a_dropped_entry_may_be_added_again(create_harness: CreateHarness) -> None:
    """Its first run, which goes on, neither answers for the second nor ends it."""
    harness = create_harness(held=True)
    await busy(harness)
    harness.pipeline.drop(["first"])
    harness.add(entry_task("first", "again"), entry_task("other", "more"))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 2)
    assert harness.completed["first"].inputs == ("again",)
    assert all(has_right_vectors(each) for each in harness.completed.values())


async def test_an_entry_that_was_added_again_is_drained_like_any_other(create_harness: CreateHarness) -> None:
    """The end of the dropped run does not hide the entry from a drain."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000, wait_s=20.0), held=True)
    harness.add(entry_task("first", "x", "y"))
    await wait_until(lambda: len(harness.backend.batches) == 1, "the first batch runs")
    harness.pipeline.drop(["first"])
    harness.add(entry_task("first", "again"))
    harness.backend.may_run.set()
    await wait_until(lambda: len(harness.results) == 1, "the dropped run has ended")
    assert harness.pipeline.drain() == ["first"]
    assert harness.answered_keys == []


async def test_a_drain_returns_entries_that_have_not_started_and_finishes_the_rest(
    create_harness: CreateHarness,
) -> None:
    """An entry of which one input runs is completed; the entries of a batch that is only ready are returned."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000), held=True)
    harness.add(entry_task("half", "11", "22", "333", "444"))
    await wait_until(lambda: len(harness.backend.batches) == 1, "the first batch runs")
    harness.add(entry_task("a"), entry_task("b"), entry_task("c"))
    assert sorted(harness.pipeline.drain()) == ["a", "b", "c"]
    harness.backend.may_run.set()
    await wait_until_answered(harness, 1)
    assert has_right_vectors(harness.completed["half"])
    assert {text for batch in harness.backend.batches for text in batch} == {"11", "22", "333", "444"}


async def test_each_run_of_an_entry_is_noted(create_harness: CreateHarness) -> None:
    """It begins with its first input and ends with each batch; an entry that waits does not run."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000), held=True)
    half, following = entry_task("half", "11", "22", "333"), entry_task("next")
    harness.add(half)
    await wait_until(lambda: len(harness.backend.batches) == 1, "the first batch runs")
    harness.add(following)
    assert (harness.runs(half), harness.runs(following)) == (True, False)
    harness.backend.may_run.set()
    await wait_until_answered(harness, 2)
    await wait_until(lambda: harness.reports.ended == ["half", "half", "next"], "the runs have ended")
    assert harness.reports.begun == ["half", "half", "next"]
    assert (harness.runs(half), harness.runs(following)) == (False, False)
    assert [result.unfinished_keys for result in harness.results if result.size] == [["half"], []]


async def test_a_full_batch_is_ready_while_another_runs(create_harness: CreateHarness) -> None:
    """It is collated in advance; only one is, so that later inputs still have a choice."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000), held=True)
    await busy(harness)
    harness.add(*(entry_task(f"e{i}") for i in range(6)))
    await wait_until(lambda: len(harness.backend.collated) == 2, "a batch is ready")
    assert harness.backend.batches == [["first"]]
    harness.backend.may_run.set()
    await wait_until_answered(harness, 7)
    assert len(harness.backend.collated) == len(harness.backend.batches) == 4


async def test_bulk_in_a_ready_batch_makes_way_for_later_interactive_inputs(create_harness: CreateHarness) -> None:
    """The batch is planned again: the interactive input runs next, and each entry is answered once."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000), held=True)
    await busy(harness)
    harness.add(*(replace(entry_task(f"bulk{i}"), bulk=True) for i in range(4)))
    await wait_until(lambda: len(harness.backend.collated) == 2, "a batch of bulk is ready")
    harness.add(entry_task("now"))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 6)
    assert "now" in harness.backend.batches[1]
    assert sorted(key for batch in harness.backend.batches for key in batch) == sorted(harness.answered_keys)
    assert all(has_right_vectors(each) for each in harness.completed.values())


async def test_a_ready_batch_that_is_the_turn_of_bulk_runs(create_harness: CreateHarness) -> None:
    """Otherwise a stream of interactive inputs would delay it for ever."""
    harness = create_harness(Limits(max_size=1, max_tokens=1_000, bulk_share=0.5), held=True)
    harness.add(entry_task("first"), *(replace(entry_task(f"bulk{i}"), bulk=True) for i in range(2)))
    await wait_until(
        lambda: len(harness.backend.collated) == 2, "bulk is ready, since interactive inputs went before it"
    )
    harness.add(entry_task("now"))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)
    assert harness.backend.batches[:2] == [["first"], ["bulk0"]]


async def test_inputs_that_wait_already_are_made_ready_when_a_run_begins(create_harness: CreateHarness) -> None:
    """No new input has to arrive: all came at once, and the second batch is collated while the first runs."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000), held=True)
    harness.add(entry_task("all", *(f"text {i}" for i in range(6))))
    await wait_until(lambda: len(harness.backend.collated) == 2, "a batch is ready")
    assert len(harness.backend.batches) == 1
    harness.backend.may_run.set()
    await wait_until_answered(harness, 1)


async def test_a_partial_batch_grows_until_the_device_is_free(create_harness: CreateHarness) -> None:
    """It is not collated before: inputs that arrive meanwhile join it."""
    harness = create_harness(held=True)
    await busy(harness)
    for i in range(5):
        harness.add(entry_task(f"e{i}"))
    assert harness.backend.collated == [["first"]]
    harness.backend.may_run.set()
    await wait_until_answered(harness, 6)
    assert sorted(harness.backend.batches[1]) == [f"e{i}" for i in range(5)]


async def test_a_suspect_shares_no_batch(create_harness: CreateHarness) -> None:
    """Its entry runs alone, with all of its inputs together."""
    harness = create_harness(held=True)
    await busy(harness)
    harness.add(entry_task("a"), entry_task("b"), entry_task("suspect", "111", "222", attempts=1))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)
    assert harness.backend.batches == [["first"], ["a", "b"], ["111", "222"]]


async def test_a_batch_without_memory_is_split_and_later_ones_are_smaller(create_harness: CreateHarness) -> None:
    """All entries are answered; the model frees memory, and no batch of that size is tried again."""
    harness = create_harness(Limits(max_size=64, max_tokens=64), held=True)
    harness.backend.max_chars = 16
    await busy(harness)
    harness.add(*(entry_task(f"{i:02}") for i in range(24)))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 25)
    assert all(has_right_vectors(each) for each in harness.completed.values())
    assert harness.failures == {}
    assert harness.backend.num_frees >= 1
    tried = len(harness.backend.batches)
    harness.add(*(entry_task(f"{i:02}") for i in range(50, 74)))
    await wait_until_answered(harness, 49)
    assert all(sum(map(len, batch)) <= harness.backend.max_chars for batch in harness.backend.batches[tried:])
    assert harness.results[-1].max_batch_tokens <= harness.backend.max_chars


async def test_an_input_for_which_there_is_no_memory_fails_alone(create_harness: CreateHarness) -> None:
    """A single input cannot be split."""
    harness = create_harness(held=True)
    harness.backend.max_chars = 16
    await busy(harness)
    harness.add(entry_task("a"), entry_task("much", "x" * 17), entry_task("b"))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)
    assert set(harness.failures) == {"much"}
    assert set(harness.completed) == {"first", "a", "b"}


async def test_suspects_run_last_and_with_nothing_beside_them(create_harness: CreateHarness) -> None:
    """Two runners run all other inputs at once, then the suspects one by one, fewest attempts first, each entry whole.

    What ran before runs no more, and its result is sent: a death of the engine does not accuse it.
    """
    harness = create_harness(Limits(max_size=1, max_tokens=1_000), held=True, runners=2, prepares_ahead=False)
    await busy(harness)
    harness.add(entry_task("second"))
    await wait_until(lambda: len(harness.backend.batches) == 2, "the second runner runs")
    harness.add(
        *(entry_task(f"e{i}") for i in range(4)),
        entry_task("twice", "one", "two", attempts=2),
        entry_task("once", attempts=1),
    )
    harness.backend.may_run.set()
    await wait_until_answered(harness, 8)
    assert (["second"], ["first"]) in harness.backend.concurrent
    assert not any({"one", "two", "once"} & {*mine, *theirs} for mine, theirs in harness.backend.concurrent)
    assert harness.backend.batches[-2:] == [["once"], ["one", "two"]]
    assert harness.reports.num_flushes == 2
    await wait_until(lambda: harness.reports.ended[-2:] == ["once", "twice"], "the runs have ended")
    assert harness.reports.begun[-2:] == ["once", "twice"]


async def test_inputs_that_arrive_while_a_suspect_runs_wait_for_its_end(create_harness: CreateHarness) -> None:
    """Then they run, on all runners."""
    harness = create_harness(Limits(max_size=1, max_tokens=1_000), held=True, runners=2, prepares_ahead=False)
    harness.add(entry_task("suspect", attempts=1))
    await wait_until(lambda: harness.backend.batches == [["suspect"]], "the suspect runs")
    harness.add(*(entry_task(f"e{i}") for i in range(6)))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 7)
    assert not any("suspect" in theirs for _, theirs in harness.backend.concurrent)
    assert harness.backend.exclusive[0] is True


async def test_a_wait_is_from_the_first_input_to_its_end(create_harness: CreateHarness) -> None:
    """An idle engine waits for more inputs for `wait_s`, and no longer."""
    harness = create_harness(Limits(max_size=8, max_tokens=1_000, wait_s=0.5))
    began = time.monotonic()
    harness.add(entry_task("a"))
    harness.add(entry_task("b"))
    await wait_until_answered(harness, 2)
    assert [sorted(batch) for batch in harness.backend.batches] == [["a", "b"]]
    assert 0.5 <= (harness.completed["a"].started_at or 0.0) - began < 5.0


async def test_a_full_batch_ends_the_wait(create_harness: CreateHarness) -> None:
    """No further input would fit."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000, wait_s=20.0))
    harness.add(entry_task("a"))
    harness.add(entry_task("b"))
    await wait_until_answered(harness, 2)
    assert [sorted(batch) for batch in harness.backend.batches] == [["a", "b"]]
    assert harness.results[0].is_full


async def test_a_result_has_the_size_tokens_and_padding_of_its_batch(create_harness: CreateHarness) -> None:
    """Padded tokens are the length of the longest text, times the number of texts."""
    harness = create_harness(held=True)
    await busy(harness)
    harness.add(entry_task("a", "1", "333", "55555"))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 2)
    result = harness.results[-1]
    assert (result.size, result.tokens, result.padded_tokens, result.is_full) == (3, 9, 15, False)
    assert result.run_s >= 0


async def test_a_result_has_the_cost_of_what_ran(create_harness: CreateHarness) -> None:
    """Each input has an equal share of its entry's, whether or not the entry is complete or still wanted."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000), held=True)
    await busy(harness)
    harness.add(replace(entry_task("a", "1", "22", "333"), cost=30))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 2)
    assert [each.cost for each in harness.results if each.size][1:] == [20.0, 10.0]


async def test_an_entry_has_the_size_of_its_largest_batch(create_harness: CreateHarness) -> None:
    """And not that of its last one, which is often small."""
    harness = create_harness(Limits(max_size=3, max_tokens=1_000), held=True)
    await busy(harness)
    harness.add(entry_task("a", "1", "2", "3", "4"))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 2)
    assert [len(batch) for batch in harness.backend.batches] == [1, 3, 1]
    assert harness.completed["a"].batch_size == 3


async def test_two_runners_run_two_batches_at_once(create_harness: CreateHarness) -> None:
    """On a CPU each has separate cores; inputs go to a free runner, and the rest waits for either."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000), held=True, runners=2, prepares_ahead=False)
    await busy(harness)
    harness.add(*(entry_task(f"e{i}") for i in range(5)))
    await wait_until(lambda: len(harness.backend.batches) == 2, "the second runner runs")
    assert len(harness.backend.batches[1]) == 2
    assert len(harness.backend.collated) == 2, "nothing is made ready"
    harness.backend.may_run.set()
    await wait_until_answered(harness, 6)
    assert all(has_right_vectors(each) for each in harness.completed.values())
    assert sorted(text for batch in harness.backend.batches for text in batch) == sorted(harness.completed)


async def test_a_batch_has_the_device_to_itself_when_nothing_else_runs_or_waits(create_harness: CreateHarness) -> None:
    """It may use all cores then; with another batch beside it or behind it, only its share."""
    harness = create_harness(Limits(max_size=2, max_tokens=1_000), held=True, runners=2, prepares_ahead=False)
    await busy(harness)
    harness.add(entry_task("second"))
    await wait_until(lambda: len(harness.backend.batches) == 2, "the second runner runs")
    harness.backend.may_run.set()
    await wait_until_answered(harness, 2)
    assert harness.backend.exclusive == [True, False]
    harness.add(entry_task("many", "1", "2", "3"))
    await wait_until_answered(harness, 3)
    assert harness.backend.exclusive[2] is False


async def test_identical_texts_are_computed_once(create_harness: CreateHarness) -> None:
    """Texts that wait at the same time share a row, whichever entries they are of; each gets its answer."""
    harness = create_harness(held=True)
    await busy(harness)
    harness.add(entry_task("a", "same", "other", "same"), entry_task("b", "same"), entry_task("c", "more"))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)
    assert sorted(harness.backend.batches[1]) == ["more", "other", "same"]
    assert all(has_right_vectors(each) for each in harness.completed.values())
    assert (harness.results[1].size, harness.results[1].inputs) == (3, 5)
    assert {task.key for task in harness.results[1].completed} == {"a", "b", "c"}


async def test_identical_texts_fail_together(create_harness: CreateHarness) -> None:
    """A text that the model cannot run fails every entry that contains it, and no other."""
    harness = create_harness(held=True)
    await busy(harness)
    harness.add(entry_task("a", "!run"), entry_task("b", "!run"), entry_task("c", "good"))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 4)
    assert harness.failures == {"a": "input_failed", "b": "input_failed"}


async def test_of_identical_texts_only_the_expired_one_is_late(create_harness: CreateHarness) -> None:
    """They share a row but no deadline; a dropped one leaves the row to the others."""
    harness = create_harness(held=True)
    await busy(harness)
    harness.add(entry_task("dead", "same", timeout_s=-1.0), entry_task("gone", "same"), entry_task("good", "same"))
    harness.pipeline.drop(["gone"])
    harness.backend.may_run.set()
    await wait_until_answered(harness, 3)
    assert harness.failures == {"dead": "deadline_exceeded"}
    assert set(harness.completed) == {"first", "good"}
    assert harness.backend.batches == [["first"], ["same"]]


async def test_a_suspect_shares_no_row(create_harness: CreateHarness) -> None:
    """Other entries with the same text are not affected by it."""
    harness = create_harness(held=True)
    await busy(harness)
    harness.add(entry_task("suspect", "same", attempts=1), entry_task("good", "same"))
    harness.backend.may_run.set()
    await wait_until_answered(harness, 3)
    assert harness.backend.batches[1:] == [["same"], ["same"]]
