"""What the unanswered requests of a connection hold."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from api.http.unanswered_requests import UnansweredRequests


def make_cycle() -> Any:  # noqa: ANN401 - stands for uvicorn's
    """Returns what uvicorn answers a request with, as far as it matters."""
    return SimpleNamespace(disconnected=False, message_event=asyncio.Event())


def test_each_request_holds_its_bytes_until_it_is_answered() -> None:
    """In the order of the requests; one that is dropped is the last."""
    requests = UnansweredRequests()
    cycles = [make_cycle() for _ in range(3)]
    for cycle, size in zip(cycles, (100, 0, 30), strict=True):
        requests.add(cycle, size)
    requests.add_body(5)
    assert requests.num_bytes == 135
    requests.remove_first()
    assert requests.num_bytes == 35
    assert requests.last is cycles[2]
    requests.remove_last()
    assert (requests.num_bytes, len(requests)) == (0, 1)
    assert requests.last is cycles[1]


def test_the_running_request_learns_that_its_client_has_left() -> None:
    """Also if others wait behind it."""
    requests, cycles = UnansweredRequests(), [make_cycle() for _ in range(2)]
    for cycle in cycles:
        requests.add(cycle, 0)
    requests.disconnect()
    assert [each.disconnected for each in cycles] == [True, False]
    assert cycles[0].message_event.is_set()
