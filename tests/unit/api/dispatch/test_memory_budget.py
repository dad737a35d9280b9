"""The memory that all requests in flight hold together."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.request import InferenceRequest
from api.dispatch.inflight import InFlight
from api.dispatch.memory_budget import SMALL_BYTES, HeldMemory, MemoryBudget, size_of_inputs, size_of_reply
from api.tenants import Tenant
from shared.errors import OverloadedError
from shared.messages import PREDICT, Failure, NewEntry, Values, Vectors

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
        request = InferenceRequest(("a",), 10, op=PREDICT)
        one, other = (InFlight(ID, entries, 0.0, request, each) for each in (first, second))
        assert one.accept(Values(ID, 0, 1, (b" " * 40,)))
        assert other.accept(Values(ID, 0, 1, (b" " * 64,)))
        with pytest.raises(OverloadedError, match="max_in_flight_bytes") as caught:
            await other.answer
        assert 1 <= (caught.value.retry_after_s or 0) <= 1.5
        assert one.accept(Values(ID, 1, 1, (b" " * 40,)))
        assert len(await one.answer) == 2
        assert budget.num_bytes == 80


def test_a_tenant_leaves_a_part_to_others() -> None:
    """Requests of one tenant have four fifths of the memory at most; another one's is accepted then."""
    budget, greedy, other = MemoryBudget(800_000), Tenant("greedy"), Tenant("other")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(HeldMemory(budget, greedy)) for _ in range(8)]
        assert [each.grow(100_000) for each in held] == [True] * 6 + [False] * 2
        assert stack.enter_context(HeldMemory(budget, other)).grow(65_000)
        assert stack.enter_context(HeldMemory(budget)).grow(1), "clients without a name have no share"
    assert (budget.num_bytes, budget.of_tenants) == (0, {})


def test_sizes_are_those_in_memory() -> None:
    """A text with one character beyond the basic plane takes four bytes for each of its characters."""
    assert size_of_inputs(["\U0001f600" + 1_000 * "a"]) >= 2 * 4_000
    assert 2_000 <= size_of_inputs(["a" * 1_000]) <= 2_200
    replies = (Vectors(ID, 0, 2, 3, bytes(24)), Values(ID, 0, 2, (b"[1]", b"null")), Failure(ID, 0, 1, "x", "y"))
    assert [size_of_reply(each) for each in replies] == [24, 7, 0]
