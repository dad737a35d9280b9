"""One request on its way: which replies count, and how it ends."""

from __future__ import annotations

import asyncio
import struct

import pytest

from api.dialects.request import Asked
from api.dispatch.inflight import InFlight
from shared.errors import DeadlineExceeded, InputFailed, InternalError
from shared.messages import DECODE, EMBED, EMBED_ALL, TOKENIZE, Draft, Failure, Ref, Reply, Values, Vectors

ID = "a" * 32
WHOLE = Asked((), 0)
PARTIAL = WHOLE._replace(partial=True)


def vectors(position: int, n: int = 2, value: float = 0.0, dim: int = 1) -> Vectors:
    """Returns a reply whose every number is `value`."""
    return Vectors(ID, position, n, dim, struct.pack("<f", value) * n * dim)


def make_request() -> InFlight:
    """Returns a request of two entries, of two inputs each."""
    return InFlight(ID, [Draft(0, 2, 10, b""), Draft(2, 2, 10, b"")], 0.0, WHOLE)


async def test_answers_are_put_together_by_position() -> None:
    """Whatever order replies come in, the answer is in the order of the request."""
    request = make_request()
    assert request.take(vectors(2, value=2.0))
    assert not request.done
    assert request.take(vectors(0, value=1.0))
    assert await request.answer == [vectors(0, value=1.0), vectors(2, value=2.0)]


async def test_the_first_answer_for_a_position_counts() -> None:
    """An entry that ran twice is answered once; the second answer is dropped."""
    request = make_request()
    assert [request.take(vectors(0, value=each)) for each in (1.0, 9.0)] == [True, False]
    assert request.take(vectors(2, value=2.0))
    assert not request.take(vectors(2, value=9.0))
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
    """Another request's id, a wrong number of inputs or a position that was not asked leaves the request waiting."""
    request = make_request()
    assert not request.take(reply)
    assert not request.done
    request.close()


async def test_one_failed_entry_fails_the_request() -> None:
    """A request is answered whole or with an error, and nothing comes after that."""
    request = make_request()
    assert request.take(vectors(0))
    assert request.take(Failure(ID, 2, 2, "input_failed", "Input 2 failed."))
    assert not request.take(vectors(2))
    with pytest.raises(InputFailed, match=r"Input 2 failed\."):
        await request.answer


async def test_an_unknown_code_is_an_internal_error() -> None:
    """A worker of a later version may know codes that this gateway does not."""
    request = make_request()
    request.take(Failure(ID, 0, 2, "brand_new", "?"))
    with pytest.raises(InternalError):
        await request.answer


async def test_vectors_of_different_lengths_are_refused() -> None:
    """Two models under one queue name are a fault of the set-up, and no answer is made of both."""
    request = make_request()
    request.take(vectors(0, dim=3))
    request.take(vectors(2, dim=4))
    with pytest.raises(InternalError, match="different models"):
        await request.answer


async def test_only_the_first_end_counts() -> None:
    """An error after the answer, or after another error, changes nothing."""
    request = make_request()
    request.fail(DeadlineExceeded("late"))
    request.fail(InternalError("later"))
    with pytest.raises(DeadlineExceeded):
        await request.answer


async def test_what_is_outstanding_is_in_the_stream_and_unanswered() -> None:
    """An entry counts from when its place is known until it is answered or found lost."""
    request = make_request()
    assert (request.submitted, request.outstanding()) == (False, {})
    refs = {position: Ref(0, b"1-%d" % position, 2, 10) for position in (0, 2)}
    for position, ref in refs.items():
        request.place(position, ref)
    assert (request.submitted, request.outstanding()) == (True, refs)
    request.take(vectors(0))
    assert request.outstanding() == {2: refs[2]}
    assert request.lose(2, refs[0]) is None, "it is elsewhere by now"
    assert request.lose(2, refs[2]) == request.drafts[2]
    assert request.outstanding() == {}
    request.close()


async def test_an_answered_entry_is_not_lost() -> None:
    """An entry that left the stream because it was answered is not added again."""
    request = make_request()
    ref = Ref(0, b"1-0", 2, 10)
    request.place(0, ref)
    request.take(vectors(0))
    assert request.lose(0, ref) is None
    request.close()


@pytest.mark.parametrize("end", ["nothing", "an answer", "an error", "a cancel"])
async def test_closing_leaves_nothing_behind(end: str) -> None:
    """However it ended, a request that nobody waits for is done, and its error is no `never retrieved` warning."""
    request = make_request()
    if end == "an answer":
        request.take(vectors(0))
        request.take(vectors(2))
    elif end == "an error":
        request.fail(InternalError(""))
    elif end == "a cancel":
        request.answer.cancel()
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    request.close()
    assert request.done
    assert not request.take(vectors(0))
    del request
    assert told == []


async def test_a_partial_request_takes_failures_for_answers() -> None:
    """In order, beside the vectors of the others."""
    request = InFlight(ID, [Draft(at, 1, 10, b"") for at in range(3)], 0.0, PARTIAL)
    failure = Failure(ID, 1, 1, "input_failed", "no")
    for reply in (vectors(2, n=1), failure, vectors(0, n=1)):
        assert request.take(reply)
    assert await request.answer == [vectors(0, n=1), failure, vectors(2, n=1)]


async def test_a_partial_request_that_expires_has_what_came() -> None:
    """What did not come says why; it is still taken back."""
    request = InFlight(ID, [Draft(at, 1, 10, b"") for at in range(3)], 0.0, PARTIAL)
    for at in range(3):
        request.place(at, Ref(0, b"%d-0" % at, 1, 10))
    assert request.take(vectors(1, n=1))
    request.expire(DeadlineExceeded("late"))
    late = [Failure(ID, at, 1, "deadline_exceeded", "late") for at in (0, 2)]
    assert await request.answer == [late[0], vectors(1, n=1), late[1]]
    assert sorted(request.outstanding()) == [0, 2]
    request.expire(DeadlineExceeded("again"))  # it is answered: nothing happens


@pytest.mark.parametrize("partial", [True, False])
async def test_a_request_that_expires_with_nothing_fails(partial: bool) -> None:
    """And one that must be whole fails in any case."""
    request = InFlight(ID, [Draft(at, 1, 10, b"") for at in range(2)], 0.0, WHOLE._replace(partial=partial))
    if not partial:
        assert request.take(vectors(1, n=1))
    request.expire(DeadlineExceeded("late"))
    with pytest.raises(DeadlineExceeded, match="late"):
        await request.answer


@pytest.mark.parametrize(
    ("op", "fitting"), [(EMBED, "vectors"), (EMBED_ALL, "each token"), (TOKENIZE, "values"), (DECODE, "values")]
)
async def test_a_reply_of_another_kind_is_dropped(op: str, fitting: str) -> None:
    """It cannot be for what was asked."""
    replies: dict[str, Reply] = {
        "vectors": vectors(0),
        "each token": Vectors(ID, 0, 2, 1, bytes(8), counts=(1, 1)),
        "values": Values(ID, 0, 2, (b"1", b"2")),
    }
    for kind, reply in replies.items():
        request = InFlight(ID, [Draft(0, 2, 10, b"")], 0.0, WHOLE._replace(op=op))
        assert request.take(reply) is (kind == fitting)
        assert request.done is (kind == fitting)


async def test_a_partial_request_that_expires_with_failures_alone_fails() -> None:
    """There is nothing to make do with."""
    request = InFlight(ID, [Draft(at, 1, 10, b"") for at in range(2)], 0.0, PARTIAL)
    assert request.take(Failure(ID, 0, 1, "input_failed", "no"))
    request.expire(DeadlineExceeded("late"))
    with pytest.raises(DeadlineExceeded):
        await request.answer


def of(revision: str, position: int) -> Vectors:
    """Returns a reply with vectors of a revision."""
    return vectors(position)._replace(revision=revision)


async def test_vectors_of_two_revisions_make_no_answer() -> None:
    """Who is told keeps those of one: the entries of the others are to run again, and complete it then."""
    told: list[InFlight] = []
    request = InFlight(ID, [Draft(at, 2, 10, b"") for at in (0, 2, 4)], 0.0, WHOLE, told.append)
    for at, revision in ((0, "a"), (2, "b"), (4, "b")):
        request.place(at, Ref(0, b"1-%d" % at, 2, 10))
        assert request.take(of(revision, at))
    assert (told, request.done, request.revisions()) == ([request], False, {"a": 2, "b": 4})
    again, waiting = request.keep("b")
    assert ([each.position for each in again], len(waiting), request.outstanding()) == ([0], 1, {})
    assert request.take(of("b", 0))
    assert await request.answer == [of("b", 0), of("b", 2), of("b", 4)]


async def test_a_revision_that_is_gone_is_given_up_with_all_that_waits_for_it() -> None:
    """Its vectors, and its entries that are in the stream; not those that are on their way there."""
    request = InFlight(ID, [Draft(at, 2, 10, b"") for at in (0, 2, 4)], 0.0, WHOLE)
    request.place(0, Ref(0, b"1-0", 2, 10))
    request.place(2, Ref(0, b"1-2", 2, 10))
    request.take(of("a", 0))
    again, waiting = request.keep("b")
    assert ([each.position for each in again], waiting) == ([0, 2], [Ref(0, b"1-0", 2, 10), Ref(0, b"1-2", 2, 10)])
    assert request.revision == "b"


async def test_a_partial_answer_in_time_is_of_one_revision() -> None:
    """What is of another when time is over counts as late."""
    request = InFlight(ID, [Draft(at, 1, 10, b"") for at in range(4)], 0.0, PARTIAL)
    for at, revision in ((0, "a"), (1, "b"), (2, "b")):
        request.take(vectors(at, n=1)._replace(revision=revision))
    request.expire(DeadlineExceeded("late"))
    found = [each.code if isinstance(each, Failure) else each[-1] for each in await request.answer]
    assert found == ["deadline_exceeded", "b", "b", "deadline_exceeded"]
