"""Which requests have a connection that waits for their replies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.dialects.request import InferenceRequest
from api.dispatch.inflight import InFlight
from api.dispatch.replies import MAX_SMALL_BYTES, Replies
from shared import producer
from shared.messages import NewEntry
from shared.queue_connections import QueueConnections

WAITERS = 3


async def no_reconcile(*_: object) -> None:
    """Reconciles nothing: no connection breaks."""


@pytest.fixture
def replies() -> Replies:
    """With waiters that are never used: no request is submitted."""
    connection: Any = object()
    return Replies([connection] * WAITERS, connection, connection, {}, no_reconcile)


def make_request(number: int) -> InFlight:
    """Returns a request."""
    deadline = asyncio.get_running_loop().time() + 60
    return InFlight(f"{number:032}", [NewEntry(0, 1, 10, b"")], deadline, InferenceRequest(("a",), 10))


async def test_one_request_with_large_results_has_a_waiter(replies: Replies) -> None:
    """The others are announced, and small ones get the other waiters."""
    large, small = [make_request(number) for number in range(3)], [make_request(number) for number in range(3, 6)]
    for each in large:
        replies.reserve(each, MAX_SMALL_BYTES + 1)
    for each in small:
        replies.reserve(each, MAX_SMALL_BYTES)
    assert [each.uses_bell for each in large + small] == [False, True, True, False, False, True]


async def test_the_next_large_request_has_a_waiter_once_the_one_that_had_it_has_ended(replies: Replies) -> None:
    """Whether others are in flight does not matter: these are announced."""
    requests = [make_request(number) for number in range(10)]
    for number, request in enumerate(requests):  # two are in flight at each time
        replies.reserve(request, MAX_SMALL_BYTES + 1)
        if number:
            replies.release(requests[number - 1])
    assert [each.uses_bell for each in requests] == [False, True] * 5


async def test_beyond_the_waiters_all_requests_use_the_bell() -> None:
    """Even if a waiter is free: of many requests in flight, replies come in fewer calls."""
    connection: Any = object()
    requests: dict[str, InFlight] = {}
    replies = Replies([connection] * WAITERS, connection, connection, requests, no_reconcile)
    all_requests = [make_request(number) for number in range(WAITERS + 2)]
    for each in all_requests[:-1]:
        requests[each.request_id] = each
        replies.reserve(each, MAX_SMALL_BYTES)
    del requests[all_requests[0].request_id]
    replies.release(all_requests[0])
    requests[all_requests[-1].request_id] = all_requests[-1]
    replies.reserve(all_requests[-1], MAX_SMALL_BYTES)
    assert [each.uses_bell for each in all_requests] == [False] * WAITERS + [True, True]


@pytest.mark.redis
async def test_a_large_request_has_no_waiter_while_another_one_listens(queue: QueueConnections) -> None:
    """One whose client has left listens until it is woken: until then its large reply may arrive."""
    waiter, control = queue.connection("reply"), queue.connection("collect")
    replies = Replies([waiter, queue.connection("other")], control, control, {}, no_reconcile)
    left, early, late = (make_request(number) for number in range(3))
    replies.reserve(left, MAX_SMALL_BYTES + 1)
    replies.wait_for(left, queue.keys)
    [task] = replies._tasks
    await asyncio.sleep(0)  # it listens
    left.close()
    replies.release(left)
    replies.reserve(early, MAX_SMALL_BYTES + 1)
    await producer.cancel(control, queue.keys, [], [left.request_id])
    await asyncio.wait_for(task, 60)
    replies.reserve(late, MAX_SMALL_BYTES + 1)
    assert [each.uses_bell for each in (left, early, late)] == [False, True, False]
