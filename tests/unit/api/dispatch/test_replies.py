"""Which requests have a connection that waits for their replies."""

from __future__ import annotations

from typing import Any

import pytest

from api.dialects.request import InferenceRequest
from api.dispatch.inflight import InFlight
from api.dispatch.replies import MAX_SMALL_BYTES, Replies
from shared.messages import NewEntry

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
    return InFlight(f"{number:032}", [NewEntry(0, 1, 10, b"")], 0.0, InferenceRequest(("a",), 10))


async def test_one_request_with_large_results_has_a_waiter(replies: Replies) -> None:
    """The others are announced, and small ones get the other waiters."""
    large, small = [make_request(number) for number in range(3)], [make_request(number) for number in range(3, 6)]
    for each in large:
        replies.reserve(each, MAX_SMALL_BYTES + 1)
    for each in small:
        replies.reserve(each, MAX_SMALL_BYTES)
    assert [each.uses_bell for each in large + small] == [False, True, True, False, False, True]


async def test_the_next_large_request_has_a_waiter_once_all_others_have_ended(replies: Replies) -> None:
    """As long as one is in flight, its waiter may bring a large reply."""
    for number in range(10):
        request = make_request(number)
        replies.reserve(request, MAX_SMALL_BYTES + 1)
        assert not request.uses_bell
        replies.release(request)
