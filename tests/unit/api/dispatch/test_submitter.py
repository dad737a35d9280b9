"""What happens while a submit or a cancel is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from api.dialects.request import InferenceRequest
from api.dispatch.inflight import InFlight
from api.dispatch.submitter import PendingSubmit, SubmitCallbacks, Submitter
from shared import scripts
from shared.errors import InternalError, RedisUnreachableError
from shared.keys import Keys
from shared.messages import MAX_TOKENS, NewEntry, Ref
from shared.process.tasks import cancel_and_wait
from shared.producer import QueueBound
from shared.redis_errors import UnexpectedReplyError
from shared.script_arguments import SubmitArguments, SubmitRequestRow
from tests.waiting import wait_until

ID = "a" * 32
TRACEPARENT_AT, REVISION_AT = (
    len(SubmitArguments._fields) + SubmitRequestRow._fields.index(each) for each in ("traceparent", "revision")
)
"""Index of a request's traceparent, and of its revision, among the arguments of its submit, when it is the first."""


class Redis:
    """Accepts submits, and changes the revision of the request during the first."""

    def __init__(self, request: InFlight) -> None:
        self._request = request
        self.submitted: list[Any] = []
        self.traced: list[Any] = []
        self.cancelled: list[Any] = []

    async def run(self, script: scripts.Script, _keys: list[str], args: list[Any]) -> Any:  # noqa: ANN401 - as RedisConnection
        """Returns what the scripts return."""
        if script is scripts.CANCEL:
            self.cancelled.append(args[5])
            return 1
        self.submitted.append(args[REVISION_AT])
        self.traced.append(args[TRACEPARENT_AT])
        if len(self.submitted) == 1:
            self._request.restrict_to_revision("new")
        return [0, b"1.1", [[b"ok", b"%d-0" % len(self.submitted)]]]


class SlowRedis:
    """Answers only the second cancel."""

    def __init__(self) -> None:
        self.cancelled: list[Any] = []

    async def run(self, _script: scripts.Script, _keys: list[str], args: list[Any]) -> Any:  # noqa: ANN401 - as RedisConnection
        """Returns what the script returns."""
        self.cancelled.append(args[5])
        if len(self.cancelled) == 1:
            await asyncio.Event().wait()
        return 1


def make_callbacks(submitted: Callable[[InFlight], None] = lambda _: None) -> SubmitCallbacks:
    """Returns callbacks that set no limits."""
    return SubmitCallbacks(
        on_submitted=submitted,
        on_epoch=lambda _: None,
        on_stale=lambda _: None,
        full=lambda _: InternalError(""),
        slow=lambda _lane, _tokens: InternalError(""),
        max_tokens=lambda *_request: MAX_TOKENS,
        limits=lambda _tenant, _budget_s: None,
        before_submit=lambda: None,
    )


async def test_a_stop_repeats_a_cancel_that_was_under_way() -> None:
    """The gateway stops its tasks, and then flushes the cancels once more."""
    redis = SlowRedis()
    submitter = Submitter(cast("Any", redis), Keys("q"), "g", QueueBound(10), make_callbacks())
    submitter.cancel([Ref(0, b"1-0", 1, 1)])
    running = asyncio.create_task(submitter.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert redis.cancelled == [b"1-0"]
    assert await submitter.flush_cancels()
    assert await submitter.flush_cancels()
    assert redis.cancelled == [b"1-0", b"1-0"]


async def test_entries_for_an_old_revision_are_cancelled_and_added_again() -> None:
    """They are added once, for the new revision and in the same trace, and their first refs are not outstanding."""
    request = InFlight(
        ID, [NewEntry(0, 1, 10, b"")], asyncio.get_running_loop().time() + 10, InferenceRequest(("a",), 10_000)
    )
    request.revision, request.traceparent = "old", "00-1-2-01"
    redis = Redis(request)
    placed: list[InFlight] = []
    submitter = Submitter(cast("Any", redis), Keys("q"), "g", QueueBound(10), make_callbacks(placed.append))
    submitter.add(PendingSubmit(request, tuple(request.new_entries.values()), exempt=True))
    running = asyncio.create_task(submitter.run())
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    assert redis.submitted == ["old", "new"]
    assert redis.traced == ["00-1-2-01"] * 2
    assert redis.cancelled == [b"1-0"]
    assert [each.entry_id for each in request.outstanding().values()] == [b"2-0"]
    assert placed == [request]
    request.close()


class OtherRedis:
    """Has another epoch than the reconcile saw."""

    async def run(self, *_args: object) -> Any:  # noqa: ANN401 - as RedisConnection
        """Returns what the script returns."""
        return [0, b"2.2", [[b"stale"]]]


async def test_lost_entries_that_were_not_added_are_reconciled_again() -> None:
    """They are outstanding again under their old ref, as they may not be lost."""
    request = InFlight(
        ID, [NewEntry(0, 1, 10, b"")], asyncio.get_running_loop().time() + 10, InferenceRequest(("a",), 10_000)
    )
    ref = Ref(0, b"1-0", 1, 10)
    request.place(0, ref)
    new_entry = request.remove_lost(0, ref)
    assert new_entry is not None
    stale: list[InFlight] = []
    callbacks = replace(make_callbacks(), on_stale=stale.append)
    submitter = Submitter(cast("Any", OtherRedis()), Keys("q"), "g", QueueBound(10), callbacks)
    submitter.add(PendingSubmit(request, (new_entry,), exempt=True, epoch=b"1.1"))
    running = asyncio.create_task(submitter.run())
    for _ in range(10):
        await asyncio.sleep(0)
    running.cancel()
    assert (stale, request.outstanding(), request.done) == ([request], {0: ref}, False)
    request.close()


class FailingRedis:
    """Fails on each call with an argument in `bad`.

    Attributes:
        submits: the requests of each submit that succeeded.
    """

    def __init__(self, *bad: object) -> None:
        self.bad = bad
        self.submits: list[list[str]] = []

    async def run(self, script: scripts.Script, _keys: list[str], args: list[Any]) -> Any:  # noqa: ANN401 - as RedisConnection
        """Returns what the script returns. Raises UnexpectedReplyError."""
        if set(self.bad) & {script.name, *args}:
            raise UnexpectedReplyError("Redis fails.")
        ids = [each for each in args if isinstance(each, str) and len(each) == len(ID)]
        if ids:
            self.submits.append(ids)
        return [0, b"1.1", [[b"ok", b"1-0"] for _ in ids]]


async def test_a_cancel_that_redis_refuses_is_not_tried_again() -> None:
    """It would be refused again, and delay all later submits and cancels."""
    submitter = Submitter(cast("Any", FailingRedis("cancel")), Keys("q"), "g", QueueBound(10), make_callbacks())
    submitter.cancel([Ref(0, b"1-0", 1, 1)], "waiter")
    assert not await submitter.flush_cancels()
    assert await submitter.flush_cancels()


def make_request(digit: str) -> InFlight:
    """Returns a request whose id consists of a digit."""
    deadline = asyncio.get_running_loop().time() + 10
    return InFlight(digit * len(ID), [NewEntry(0, 1, 10, b"")], deadline, InferenceRequest(("a",), 10_000))


async def submit_all(redis: FailingRedis, requests: Sequence[InFlight]) -> tuple[Submitter, asyncio.Task[None]]:
    """Submits requests together; returns the submitter, and its task."""
    submitter = Submitter(cast("Any", redis), Keys("q"), "g", QueueBound(10), make_callbacks())
    for each in requests:
        submitter.add(PendingSubmit(each, tuple(each.new_entries.values())))
    return submitter, asyncio.create_task(submitter.run())


@pytest.mark.parametrize("bad", range(5))
async def test_a_request_on_which_redis_fails_holds_up_no_other(bad: int) -> None:
    """It gets a 503 at once, and all others are submitted; the gateway does not count Redis as away."""
    requests = [make_request(digit) for digit in "01234"]
    redis = FailingRedis(requests[bad].request_id)
    submitter, running = await submit_all(redis, requests)
    with pytest.raises(RedisUnreachableError):
        await requests[bad].answer
    others = [each.request_id for each in requests if each is not requests[bad]]
    await wait_until(lambda: [each for ids in redis.submits for each in ids] == others, "the others are submitted")
    assert submitter.retrying_since is None
    await cancel_and_wait([running])


async def test_a_shared_entry_on_which_redis_fails_is_sent_apart() -> None:
    """An error that may be that of one of its requests: each of them is sent by itself."""
    request = make_request("0")
    request.num_coalesced = 2
    _, running = await submit_all(FailingRedis(request.request_id), [request])
    with pytest.raises(InternalError):
        await request.answer
    await cancel_and_wait([running])


async def test_requests_wait_while_redis_fails_on_all() -> None:
    """They are submitted once, together, when it is repaired."""
    requests, redis = [make_request(digit) for digit in "01"], FailingRedis("submit")
    submitter, running = await submit_all(redis, requests)
    await wait_until(lambda: submitter.retrying_since is not None, "Redis counts as away")
    assert not any(each.done for each in requests)
    redis.bad = ()
    await wait_until(lambda: submitter.retrying_since is None, "Redis is back")
    assert redis.submits == [[each.request_id for each in requests]]
    await cancel_and_wait([running])
    for each in requests:
        each.close()
