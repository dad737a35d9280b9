"""The memory that all requests in flight hold together."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.request import InferenceRequest
from api.dispatch.inflight import InFlight
from api.memory_budget import RESERVED_PARTS, SMALL_BYTES, HeldMemory, MemoryBudget, size_of_inputs, size_of_reply
from api.tenants import ShareHolder
from shared.errors import OverloadedError
from shared.messages import PREDICT, Failure, NewEntry, Values, Vectors

ID = "0" * 32
UNIT = SMALL_BYTES // 2
GREEDY, HEAVY, LIGHT = ShareHolder("greedy"), ShareHolder("heavy", 9), ShareHolder("light", 0.1)
HOLDERS = (GREEDY, GREEDY, GREEDY, HEAVY, HEAVY, LIGHT, LIGHT)
"""Of each request of the simulation."""


@dataclass(frozen=True)
class Step:
    """A request of those in `HOLDERS` asks for a number of units, in addition to its own or in their place."""

    request: int
    units: int
    in_place: bool


class Simulation:
    """A budget, and what is known to be held of it."""

    def __init__(self, max_bytes: int) -> None:
        self.budget = MemoryBudget(max_bytes)
        self.requests = [HeldMemory(self.budget, each) for each in HOLDERS]
        self.held = [0] * len(HOLDERS)

    def step(self, step: Step) -> None:
        """One request asks; what it gets is what the rule says, and what is refused changes nothing."""
        number, wanted = step.request, step.units * UNIT
        if step.in_place:
            self.held[number] = 0
        after = self.held[number] + wanted
        is_due = self.fits(number, after)
        request = self.requests[number]
        assert (request.resize(wanted) if step.in_place else request.grow(wanted)) == is_due
        if is_due:
            self.held[number] = after
        assert self.budget.num_bytes == sum(self.held)
        assert Counter(self.budget.of_holders) == self.of_holders()

    def fits(self, number: int, after: int) -> bool:
        """Whether a request may hold this much: it is alone, or there is room for all and for its holder."""
        others = sum(self.held) - self.held[number]
        room = self.budget.max_bytes - (self.budget.max_bytes // RESERVED_PARTS if after > SMALL_BYTES else 0)
        holder = HOLDERS[number]
        free = self.budget.max_bytes - others - after
        of_holder = self.of_holders()[holder.name] - self.held[number] + after
        has_share = of_holder <= 1 or of_holder <= 4.000001 * holder.weight * free
        return others == 0 or (others + after <= room and has_share)

    def of_holders(self) -> Counter[str]:
        """Returns what each holder holds."""
        found: Counter[str] = Counter()
        for each, held in zip(HOLDERS, self.held, strict=True):
            found[each.name] += held
        return found


@given(
    max_bytes=st.integers(0, 100),
    steps=st.lists(st.builds(Step, st.integers(0, len(HOLDERS) - 1), st.integers(0, 60), st.booleans())),
)
def test_the_rule_holds_for_all_requests(max_bytes: int, steps: list[Step]) -> None:
    """Several requests never hold more than the maximum, nor a holder more than its share; in the end all is free.

    The unit is half a small request, so that large ones have seven eighths of the maximum.
    """
    simulation = Simulation(max_bytes * UNIT)
    for step in steps:
        simulation.step(step)
        assert sum(map(bool, simulation.held)) <= 1 or sum(simulation.held) <= simulation.budget.max_bytes
    for each in simulation.requests:
        each.release()
    assert (simulation.budget.num_bytes, simulation.budget.of_holders) == (0, {})


@given(wanted=st.lists(st.integers(1, 40), min_size=1), weight=st.floats(0.1, 10))
def test_whatever_a_tenant_takes_another_gets_a_small_request(wanted: list[int], weight: float) -> None:
    """A tenant of several requests, none of which is larger than its share, never holds all memory."""
    budget, greedy = MemoryBudget(160 * UNIT), ShareHolder("greedy", weight)
    for units in wanted:
        HeldMemory(budget, greedy).grow(units * UNIT)
    assert HeldMemory(budget, ShareHolder("other")).grow(budget.max_bytes // 100)


async def test_a_reply_beyond_the_maximum_fails_its_request_alone() -> None:
    """The others keep what they have, and get their answers."""
    budget = MemoryBudget(100)
    entries = [NewEntry(0, 1, 10, b""), NewEntry(1, 1, 10, b"")]
    with HeldMemory(budget, GREEDY) as first, HeldMemory(budget, HEAVY) as second:
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
    budget, greedy, other = MemoryBudget(800_000), ShareHolder("greedy"), ShareHolder("other")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(HeldMemory(budget, greedy)) for _ in range(8)]
        assert [each.grow(100_000) for each in held] == [True] * 6 + [False] * 2
        assert stack.enter_context(HeldMemory(budget, other)).grow(65_000)
    assert (budget.num_bytes, budget.of_holders) == (0, {})


def test_sizes_are_those_in_memory() -> None:
    """A text with one character beyond the basic plane takes four bytes for each of its characters."""
    assert size_of_inputs(["\U0001f600" + 1_000 * "a"]) >= 2 * 4_000
    assert 2_000 <= size_of_inputs(["a" * 1_000]) <= 2_200
    replies = (Vectors(ID, 0, 2, 3, bytes(24)), Values(ID, 0, 2, (b"[1]", b"null")), Failure(ID, 0, 1, "x", "y"))
    assert [size_of_reply(each) for each in replies] == [24, 7, 0]
