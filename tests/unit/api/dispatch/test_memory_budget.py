"""The memory that all requests in flight hold together."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.request import InferenceRequest
from api.dispatch.inflight import InFlight
from api.dispatch.memory_budget import SMALL_BYTES, HeldMemory, MemoryBudget, size_of_inputs, size_of_reply
from shared.errors import OverloadedError
from shared.messages import Failure, NewEntry, Values, Vectors

ID = "0" * 32


@given(max_bytes=st.integers(0, 100), steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60))))
def test_several_requests_never_hold_more_than_the_maximum(max_bytes: int, steps: list[tuple[int, int]]) -> None:
    """A request that is the only one may. What is refused reserves nothing, and all is free in the end.

    The unit is half a small request, so that large ones have seven eighths of the maximum.
    """
    max_bytes *= SMALL_BYTES // 2
    budget = MemoryBudget(max_bytes)
    with contextlib.ExitStack() as stack:
        requests = [stack.enter_context(HeldMemory(budget)) for _ in range(4)]
        held = [0] * 4
        for number, units in steps:
            by, others = units * SMALL_BYTES // 2, sum(held) - held[number]
            grew = requests[number].grow(by)
            maximum = max_bytes if held[number] + by <= SMALL_BYTES else max_bytes - max_bytes // 8
            assert grew == (others == 0 or others + held[number] + by <= maximum)
            held[number] += by if grew else 0
            assert budget.num_bytes == sum(held)
    assert budget.num_bytes == 0


async def test_a_reply_beyond_the_maximum_fails_its_request_alone() -> None:
    """The others keep what they have, and get their answers."""
    budget = MemoryBudget(100)
    entries = [NewEntry(0, 1, 10, b""), NewEntry(1, 1, 10, b"")]
    with HeldMemory(budget) as first, HeldMemory(budget) as second:
        one, other = (InFlight(ID, entries, 0.0, InferenceRequest(("a",), 10), each) for each in (first, second))
        assert one.accept(Vectors(ID, 0, 1, 10, bytes(40)))
        assert other.accept(Vectors(ID, 0, 1, 16, bytes(64)))
        with pytest.raises(OverloadedError, match="max_in_flight_bytes") as caught:
            await other.answer
        assert 1 <= (caught.value.retry_after_s or 0) <= 1.5
        assert one.accept(Vectors(ID, 1, 1, 10, bytes(40)))
        assert len(await one.answer) == 2
        assert budget.num_bytes == 80


def test_sizes_are_those_in_memory() -> None:
    """A text with one character beyond the basic plane takes four bytes for each of its characters."""
    assert size_of_inputs(["\U0001f600" + 1_000 * "a"]) >= 2 * 4_000
    assert 2_000 <= size_of_inputs(["a" * 1_000]) <= 2_200
    replies = (Vectors(ID, 0, 2, 3, bytes(24)), Values(ID, 0, 2, (b"[1]", b"null")), Failure(ID, 0, 1, "x", "y"))
    assert [size_of_reply(each) for each in replies] == [24, 7, 0]
