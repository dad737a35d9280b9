"""What happens while a submit, or a cancel, is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from redis.exceptions import ResponseError

from api.dialects.request import Asked
from api.dispatch.inflight import InFlight
from api.dispatch.submitter import Order, Submitter, Told
from shared import scripts
from shared.errors import InternalError
from shared.keys import Keys
from shared.messages import MOST_TOKENS, Draft, Ref
from shared.producer import Bound

ID = "a" * 32
TRACEPARENT_AT, REVISION_AT = 14, 15
"""Index of a request's traceparent, and of its revision, among the arguments of its submit, when it is the first."""


class Redis:
    """Takes submits, and has the revision that the request is for change during the first."""

    def __init__(self, request: InFlight) -> None:
        self._request = request
        self.submitted: list[Any] = []
        self.traced: list[Any] = []
        self.cancelled: list[Any] = []

    async def run(self, script: scripts.Script, _keys: list[str], args: list[Any]) -> Any:  # noqa: ANN401 - as Link
        """Answers as the scripts do."""
        if script is scripts.CANCEL:
            self.cancelled.append(args[5])
            return 1
        self.submitted.append(args[REVISION_AT])
        self.traced.append(args[TRACEPARENT_AT])
        if len(self.submitted) == 1:
            self._request.keep("new")
        return [0, b"1.1", [[b"ok", b"%d-0" % len(self.submitted)]]]


class SlowRedis:
    """Answers the second cancel alone."""

    def __init__(self) -> None:
        self.cancelled: list[Any] = []

    async def run(self, _script: scripts.Script, _keys: list[str], args: list[Any]) -> Any:  # noqa: ANN401 - as Link
        """Answers as the script does."""
        self.cancelled.append(args[5])
        if len(self.cancelled) == 1:
            await asyncio.Event().wait()
        return 1


def told(submitted: Callable[[InFlight], None] = lambda _: None) -> Told:
    """Somebody who is told what came of a submit, and says that there is room for everything."""
    return Told(
        submitted=submitted,
        epoch=lambda _: None,
        full=lambda _: InternalError(""),
        slow=lambda _lane, _tokens: InternalError(""),
        most_tokens=lambda _lane, _budget_s: MOST_TOKENS,
        limits=lambda _tenant, _budget_s: None,
    )


async def test_what_a_stop_finds_half_taken_back_is_taken_back_at_last() -> None:
    """The gateway ends its tasks, and then asks once more."""
    redis = SlowRedis()
    submitter = Submitter(cast("Any", redis), Keys("q"), "g", Bound(10), told())
    submitter.cancel([Ref(0, b"1-0", 1, 1)])
    running = asyncio.create_task(submitter.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert redis.cancelled == [b"1-0"]
    assert await submitter.flush_cancels()
    assert await submitter.flush_cancels()
    assert redis.cancelled == [b"1-0", b"1-0"]


async def test_what_was_for_a_revision_that_is_gone_is_taken_back_and_added_again() -> None:
    """Once, for the one that it is for now, of the same trace; and it is not counted as waiting where it was first."""
    request = InFlight(ID, [Draft(0, 1, 10, b"")], asyncio.get_running_loop().time() + 10, Asked(("a",), 10_000))
    request.revision, request.traceparent = "old", "00-1-2-01"
    redis = Redis(request)
    placed: list[InFlight] = []
    submitter = Submitter(cast("Any", redis), Keys("q"), "g", Bound(10), told(placed.append))
    submitter.add(Order(request, tuple(request.drafts.values()), exempt=True))
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


class Refusing:
    """Refuses every cancel, as a Redis does that does not allow it."""

    async def run(self, *_asked: object) -> None:
        """Answers with an error."""
        raise ResponseError("NOPERM")


async def test_a_cancel_that_redis_refuses_is_not_tried_again() -> None:
    """It would be refused again, and hold up all that comes after it."""
    submitter = Submitter(cast("Any", Refusing()), Keys("q"), "g", Bound(10), told())
    submitter.cancel([Ref(0, b"1-0", 1, 1)], "waiter")
    with pytest.raises(ResponseError):
        await submitter.flush_cancels()
    assert await submitter.flush_cancels()
