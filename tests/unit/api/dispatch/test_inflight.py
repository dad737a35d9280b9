"""One request in flight: which replies count, and how the request ends."""

from __future__ import annotations

import asyncio
import struct

import pytest

from api.dialects.request import InferenceRequest
from api.dispatch.inflight import RESUBMIT_INTERVAL_S, InFlight
from api.memory_budget import unbounded
from shared.errors import DeadlineExceededError, InputFailedError, InternalError, InvalidRequestError
from shared.messages import (
    DECODE,
    EMBED,
    EMBED_ALL,
    PREDICT,
    TOKENIZE,
    Failure,
    FailureOrigin,
    NewEntry,
    Ref,
    Reply,
    TooLong,
    Values,
    Vectors,
)

ID = "a" * 32
WHOLE = InferenceRequest((), 0)
PARTIAL = WHOLE._replace(partial=True)


def vectors(position: int, n: int = 2, value: float = 0.0, dim: int = 1) -> Vectors:
    """Returns a reply whose every number is `value`."""
    return Vectors(ID, position, n, dim, struct.pack("<f", value) * n * dim)


def make_request() -> InFlight:
    """Returns a request of two entries, of two inputs each."""
    return InFlight(ID, [NewEntry(0, 2, 10, b""), NewEntry(2, 2, 10, b"")], 0.0, WHOLE)


async def test_replies_are_ordered_by_position() -> None:
    """The answer is in the order of the request, in whatever order its replies come."""
    request = make_request()
    assert request.accept(vectors(2, value=2.0))
    assert not request.done
    assert request.accept(vectors(0, value=1.0))
    assert await request.answer == [vectors(0, value=1.0), vectors(2, value=2.0)]


async def test_the_first_reply_for_a_position_counts() -> None:
    """The second reply to an entry that ran twice is dropped."""
    request = make_request()
    assert [request.accept(vectors(0, value=each)) for each in (1.0, 9.0)] == [True, False]
    assert request.accept(vectors(2, value=2.0))
    assert not request.accept(vectors(2, value=9.0))
    assert (await request.answer)[0] == vectors(0, value=1.0)


@pytest.mark.parametrize(
    "reply",
    [
        vectors(0)._replace(request_id="b" * 32),
        vectors(0, n=1),
        vectors(0, n=3),
        vectors(1),
        vectors(4),
        Failure("b" * 32, 0, 2, "internal", ""),
        Failure(ID, 1, 2, "internal", ""),
    ],
)
async def test_a_reply_that_does_not_fit_is_dropped(reply: Vectors | Failure) -> None:
    """A reply with another request's id, a wrong number of inputs or an unknown position leaves the request waiting."""
    request = make_request()
    assert not request.accept(reply)
    assert not request.done
    request.close()


async def test_one_failed_entry_fails_the_request() -> None:
    """The request is answered with the error of its failed entry, and later replies are dropped."""
    request = make_request()
    assert request.accept(vectors(0))
    assert request.accept(Failure(ID, 2, 2, "input_failed", "Input 2 failed."))
    assert not request.accept(vectors(2))
    with pytest.raises(InputFailedError, match=r"Input 2 failed\."):
        await request.answer


@pytest.mark.parametrize(("indices", "named"), [((), 3), ((5, 6, 7, 9), 9)])
async def test_an_error_names_the_input_at_fault(indices: tuple[int, ...], named: int) -> None:
    """By its index in the client's request, of which the inputs in flight may be a part."""
    entries = [NewEntry(0, 2, 10, b""), NewEntry(2, 2, 10, b"")]
    request = InFlight(ID, entries, 0.0, WHOLE._replace(indices=indices))
    assert request.accept(Failure(ID, 2, 2, "invalid_request", "too long", 1, too_long=TooLong(9, 8)))
    with pytest.raises(InvalidRequestError, match=f"^Input {named}: too long$") as caught:
        await request.answer
    assert caught.value.too_long == (9, 8)


@pytest.mark.parametrize(("indices", "message"), [((), "too long"), ((4,), "Input 4: too long")])
async def test_an_error_names_no_input_where_there_is_only_one(indices: tuple[int, ...], message: str) -> None:
    """An index would say nothing, unless the others of the client's request have their vectors from the cache."""
    request = InFlight(ID, [NewEntry(0, 1, 10, b"")], 0.0, WHOLE._replace(indices=indices))
    assert request.accept(Failure(ID, 0, 1, "invalid_request", "too long", 0))
    with pytest.raises(InvalidRequestError, match=f"^{message}$"):
        await request.answer


async def test_an_unknown_code_is_an_internal_error() -> None:
    """A code that only a worker of a later version knows becomes an internal error."""
    request = make_request()
    request.accept(Failure(ID, 0, 2, "brand_new", "?"))
    with pytest.raises(InternalError):
        await request.answer


async def test_vectors_of_different_lengths_are_refused() -> None:
    """Two models under one queue name are a configuration error: the request fails, and no answer mixes them."""
    request = make_request()
    request.accept(vectors(0, dim=3))
    request.accept(vectors(2, dim=4))
    with pytest.raises(InternalError, match="different models"):
        await request.answer


async def test_only_the_first_end_counts() -> None:
    """An error after the answer, or after another error, changes nothing."""
    request = make_request()
    request.fail(DeadlineExceededError("late"))
    request.fail(InternalError("later"))
    with pytest.raises(DeadlineExceededError):
        await request.answer


async def test_an_outstanding_entry_is_in_the_stream_and_has_no_reply() -> None:
    """An entry is outstanding from when its ref is known until it has a reply or is lost."""
    request = make_request()
    assert (request.submitted, request.outstanding()) == (False, {})
    refs = {position: Ref(0, b"1-%d" % position, 2, 10) for position in (0, 2)}
    for position, ref in refs.items():
        request.place(position, ref)
    assert (request.submitted, request.outstanding()) == (True, refs)
    request.accept(vectors(0))
    assert request.outstanding() == {2: refs[2]}
    assert request.remove_lost(2, refs[0]) is None, "its ref is another by now"
    assert request.remove_lost(2, refs[2]) == request.new_entries[2]
    assert request.outstanding() == {}
    request.close()


async def test_a_lost_entry_is_sought_under_all_its_refs() -> None:
    """Another master may still have it under an earlier one. At the end, all of them are cancelled."""
    request = make_request()
    first, second, other = Ref(0, b"1-0", 2, 10), Ref(0, b"2-0", 2, 10), Ref(0, b"1-2", 2, 10)
    request.place(0, first)
    request.place(2, other)
    assert request.remove_lost(0, first) is not None
    assert request.sought_refs() == [(2, other)], "it is on its way into the stream"
    request.place(0, second)
    assert request.sought_refs() == [(2, other), (0, second), (0, first)]
    request.accept(vectors(0))
    assert request.sought_refs() == [(2, other)]
    assert request.leftover_refs() == [other, first]
    request.close()


async def test_a_lost_entry_is_added_again_once_in_a_while() -> None:
    """However often it is lost; unless it was not added."""
    request = make_request()
    ref = Ref(0, b"1-0", 2, 10)
    request.place(0, ref)
    assert request.resubmit_wait_s(0, now=100.0) == 0.0
    request.remove_lost(0, ref, now=100.0)
    assert request.resubmit_wait_s(0, now=100.25) == RESUBMIT_INTERVAL_S - 0.25
    assert request.resubmit_wait_s(2, now=100.25) == 0.0
    request.restore_lost(0)
    assert (request.resubmit_wait_s(0, now=100.25), request.outstanding()) == (0.0, {0: ref})
    request.remove_lost(0, ref, now=100.25)
    assert request.resubmit_wait_s(0, now=100.25 + RESUBMIT_INTERVAL_S) == 0.0
    request.close()


async def test_the_refs_of_lost_entries_end_with_their_revision() -> None:
    """They are cancelled with the others: what they name would have vectors of the old revision."""
    request = make_request()
    refs = [Ref(0, b"%d-0" % number, 2, 10) for number in (1, 2)]
    request.place(0, refs[0])
    request.remove_lost(0, refs[0])
    request.place(0, refs[1])
    _, old_refs = request.restrict_to_revision("new")
    assert (old_refs, request.leftover_refs()) == ([refs[1], refs[0]], [])
    request.close()


async def test_an_answered_entry_is_not_lost() -> None:
    """An entry that left the stream because it has a reply is not added again."""
    request = make_request()
    ref = Ref(0, b"1-0", 2, 10)
    request.place(0, ref)
    request.accept(vectors(0))
    assert request.remove_lost(0, ref) is None
    request.close()


@pytest.mark.parametrize("end", ["nothing", "an answer", "an error", "a cancel"])
async def test_closing_leaves_nothing_behind(end: str) -> None:
    """A closed request is done, however it ended, and its error causes no `never retrieved` warning."""
    request = make_request()
    if end == "an answer":
        request.accept(vectors(0))
        request.accept(vectors(2))
    elif end == "an error":
        request.fail(InternalError(""))
    elif end == "a cancel":
        request.answer.cancel()
    warnings: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: warnings.append(context))
    request.close()
    assert request.done
    assert not request.accept(vectors(0))
    del request
    assert warnings == []


async def test_a_partial_request_accepts_failures_as_replies() -> None:
    """The answer holds the failure in its position, beside the vectors of the other inputs."""
    request = InFlight(ID, [NewEntry(at, 1, 10, b"") for at in range(3)], 0.0, PARTIAL)
    failure = Failure(ID, 1, 1, "input_failed", "no")
    for reply in (vectors(2, n=1), failure, vectors(0, n=1)):
        assert request.accept(reply)
    assert await request.answer == [vectors(0, n=1), failure, vectors(2, n=1)]


async def test_a_partial_request_that_expires_has_the_replies_so_far() -> None:
    """Entries without a reply get a failure with the deadline's error, and stay outstanding, to be cancelled."""
    request = InFlight(ID, [NewEntry(at, 1, 10, b"") for at in range(3)], 0.0, PARTIAL)
    for at in range(3):
        request.place(at, Ref(0, b"%d-0" % at, 1, 10))
    assert request.accept(vectors(1, n=1))
    request.expire(DeadlineExceededError("late"))
    late = [Failure(ID, at, 1, "deadline_exceeded", "late") for at in (0, 2)]
    assert await request.answer == [late[0], vectors(1, n=1), late[1]]
    assert sorted(request.outstanding()) == [0, 2]
    request.expire(DeadlineExceededError("again"))  # the request is answered: this changes nothing


@pytest.mark.parametrize("partial", [True, False])
async def test_a_request_that_expires_without_a_usable_reply_fails(partial: bool) -> None:
    """A partial request fails if it has no reply, and a request that must be complete fails in any case."""
    request = InFlight(ID, [NewEntry(at, 1, 10, b"") for at in range(2)], 0.0, WHOLE._replace(partial=partial))
    if not partial:
        assert request.accept(vectors(1, n=1))
    request.expire(DeadlineExceededError("late"))
    with pytest.raises(DeadlineExceededError, match="late"):
        await request.answer


@pytest.mark.parametrize(
    ("op", "fitting"), [(EMBED, "vectors"), (EMBED_ALL, "each token"), (TOKENIZE, "values"), (DECODE, "values")]
)
async def test_a_reply_of_another_kind_is_dropped(op: str, fitting: str) -> None:
    """Only the kind of reply that the operation returns is accepted."""
    replies: dict[str, Reply] = {
        "vectors": vectors(0),
        "each token": Vectors(ID, 0, 2, 1, bytes(8), counts=(1, 1)),
        "values": Values(ID, 0, 2, (b"1", b"2")),
    }
    for kind, reply in replies.items():
        request = InFlight(ID, [NewEntry(0, 2, 10, b"")], 0.0, WHOLE._replace(op=op))
        assert request.accept(reply) is (kind == fitting)
        assert request.done is (kind == fitting)


@pytest.mark.parametrize("op", [EMBED, TOKENIZE])
async def test_a_pinned_request_takes_no_reply_of_another_revision(op: str) -> None:
    """Not even if it has one entry, whose revision is not compared with others."""
    reply = Values(ID, 0, 2, (b"1", b"2"), revision="new") if op == TOKENIZE else vectors_of("new", 0)
    request = InFlight(ID, [NewEntry(0, 2, 10, b"")], 0.0, WHOLE._replace(op=op, revision="old"))
    assert not request.accept(reply)
    assert not request.done
    assert request.accept(reply._replace(revision="old"))
    assert request.done


async def test_a_pinned_request_takes_values_of_an_older_worker() -> None:
    """Such a worker says no revision with them, but runs no entry for another one."""
    request = InFlight(ID, [NewEntry(0, 2, 10, b"")], 0.0, WHOLE._replace(op=TOKENIZE, revision="old"))
    assert request.accept(Values(ID, 0, 2, (b"1", b"2")))
    assert request.done


async def test_results_that_run_again_hold_no_memory() -> None:
    """Otherwise large ones would exceed the bounds while the revision changes."""
    memory = unbounded()
    entries = [NewEntry(at, 1, 10, b"") for at in range(2)]
    request = InFlight(ID, entries, 0.0, WHOLE._replace(op=TOKENIZE), memory)
    held = []
    for at, revision in enumerate(("old", "new")):
        assert request.accept(Values(ID, at, 1, (b"1" * 30 * 2**20,), revision=revision))
        held.append(memory.num_bytes)
    request.restrict_to_revision("new")
    assert memory.num_bytes == held[0]
    assert request.accept(Values(ID, 0, 1, (b"1" * 30 * 2**20,), revision="new"))
    assert len(await request.answer) == 2


@pytest.mark.parametrize(("op", "is_mixed"), [(TOKENIZE, True), (PREDICT, False)])
async def test_values_are_of_one_revision_but_for_functions(op: str, is_mixed: bool) -> None:
    """A function may have effects, so that it is not called again."""
    seen: list[InFlight] = []
    entries = [NewEntry(at, 1, 10, b"") for at in range(2)]
    request = InFlight(ID, entries, 0.0, WHOLE._replace(op=op), None, seen.append)
    for at, revision in enumerate(("old", "new")):
        assert request.accept(Values(ID, at, 1, (b"1",), revision=revision))
    assert (seen == [request]) == is_mixed
    assert request.done != is_mixed


async def test_a_partial_request_that_expires_with_only_failures_fails() -> None:
    """Without any vector there is no partial answer."""
    request = InFlight(ID, [NewEntry(at, 1, 10, b"") for at in range(2)], 0.0, PARTIAL)
    assert request.accept(Failure(ID, 0, 1, "input_failed", "no"))
    request.expire(DeadlineExceededError("late"))
    with pytest.raises(DeadlineExceededError):
        await request.answer


def vectors_of(revision: str, position: int) -> Vectors:
    """Returns a reply with the vectors of a revision."""
    return vectors(position)._replace(revision=revision)


async def test_vectors_of_two_revisions_make_no_answer() -> None:
    """After a restriction to one revision, the entries of the others run again and complete the answer."""
    mixed: list[InFlight] = []
    request = InFlight(ID, [NewEntry(at, 2, 10, b"") for at in (0, 2, 4)], 0.0, WHOLE, on_mixed_revisions=mixed.append)
    for at, revision in ((0, "a"), (2, "b"), (4, "b")):
        request.place(at, Ref(0, b"1-%d" % at, 2, 10))
        assert request.accept(vectors_of(revision, at))
    assert (mixed, request.done, request.revisions()) == ([request], False, {"a": 2, "b": 4})
    rerun, old_refs = request.restrict_to_revision("b")
    assert ([each.position for each in rerun], len(old_refs), request.outstanding()) == ([0], 1, {})
    assert request.accept(vectors_of("b", 0))
    assert await request.answer == [vectors_of("b", at) for at in (0, 2, 4)]


async def test_a_change_of_revision_reruns_the_entries_in_the_stream() -> None:
    """Vectors of the old revision and entries in the stream run again; entries on their way into it do not."""
    request = InFlight(ID, [NewEntry(at, 2, 10, b"") for at in (0, 2, 4)], 0.0, WHOLE)
    request.place(0, Ref(0, b"1-0", 2, 10))
    request.place(2, Ref(0, b"1-2", 2, 10))
    request.accept(vectors_of("a", 0))
    rerun, old_refs = request.restrict_to_revision("b")
    assert ([each.position for each in rerun], old_refs) == ([0, 2], [Ref(0, b"1-0", 2, 10), Ref(0, b"1-2", 2, 10)])
    assert request.revision == "b"


async def test_a_partial_answer_in_time_is_of_one_revision() -> None:
    """Vectors of another revision at the deadline count as late."""
    request = InFlight(ID, [NewEntry(at, 1, 10, b"") for at in range(4)], 0.0, PARTIAL)
    for at, revision in ((0, "a"), (1, "b"), (2, "b")):
        request.accept(vectors(at, n=1)._replace(revision=revision))
    request.expire(DeadlineExceededError("late"))
    replies = await request.answer
    codes_or_revisions = [each.revision if isinstance(each, Vectors) else getattr(each, "code", "") for each in replies]
    assert codes_or_revisions == ["deadline_exceeded", "b", "b", "deadline_exceeded"]


@pytest.mark.parametrize(
    ("message", "is_loggable", "logged"),
    [
        ("dimensions: no.", True, "dimensions: no."),
        ("My text is bad.", False, ""),
        ("two\nlines", True, ""),
        ("x" * 1_001, True, ""),
    ],
    ids=["of the worker", "of a user's class", "not printable", "long"],
)
async def test_logs_have_a_message_that_its_worker_says_quotes_nothing(
    message: str, is_loggable: bool, logged: str
) -> None:
    """Clients get any message; an older worker says nothing, so that its messages are left out."""
    request = make_request()
    request.accept(Failure(ID, 0, 2, InvalidRequestError.code, message, origin=FailureOrigin(is_loggable=is_loggable)))
    with pytest.raises(InvalidRequestError) as refused:
        await request.answer
    assert (refused.value.message, refused.value.log_message) == (message, logged)
