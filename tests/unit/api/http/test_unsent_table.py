"""Which connections are closed because of what their clients do not read: of the client with the most, the slowest."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.unsent_table import UnsentTable
from api.settings_groups import UnsentLimits
from api.tenants import ShareHolder

HOLDERS = (ShareHolder("one"), ShareHolder("other"), ShareHolder("heavy", 2.0))
LIMITS = UnsentLimits(max_per_connection=60, max_bytes=100, timeout_s=10.0)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "receive", "receive", "look", "sent"]),
        st.integers(0, 5),
        st.integers(1, 45),
        st.floats(0, 5),
    ),
    max_size=80,
)


def holder_of(key: int) -> ShareHolder:
    """Returns the client of a connection."""
    return HOLDERS[key % len(HOLDERS)]


@dataclass
class Written:
    """What one connection is known to hold."""

    num_bytes: int
    num_left: int
    stalled_since_s: float
    num_left_at_look: int


class Simulation:
    """A table, and what its connections are known to hold."""

    def __init__(self) -> None:
        self.table: UnsentTable[int] = UnsentTable(LIMITS)
        self.written: dict[int, Written] = {}
        self.now_s = 0.0

    def step(self, what: str, key: int, number: int, wait_s: float) -> None:
        """Something happens on a connection after a while; those that are overdue then are closed before it."""
        self.now_s += wait_s
        due = {each for each, state in self.written.items() if state.stalled_since_s + LIMITS.timeout_s <= self.now_s}
        assert set(self.table.take_overdue(self.now_s)) == due
        for each in due:
            del self.written[each]
        if what == "write":
            self.write(key, number)
        elif what == "look":
            self.look()
        elif key in self.written and what == "sent":
            self.table.remove(key)
            del self.written[key]
        elif key in self.written:
            self.written[key].num_left = max(0, self.written[key].num_left - number)

    def write(self, key: int, number: int) -> None:
        """Bytes are written to a connection; others may have to be closed for them."""
        state = self.written.setdefault(key, Written(0, 0, self.now_s, 0))
        state.num_bytes += number
        state.num_left += number
        state.num_left_at_look = state.num_left
        fits = self.table.add(key, holder_of(key), number, state.num_left, self.now_s)
        assert fits == (state.num_bytes <= LIMITS.max_per_connection)
        if not fits:
            del self.written[key]
        for each in self.table.take_excess():
            assert sum(state.num_bytes for state in self.written.values()) > LIMITS.max_bytes
            shares = self.shares()
            assert shares[holder_of(each)] == max(shares.values())
            of_client = [state for key, state in self.written.items() if holder_of(key) == holder_of(each)]
            assert self.written[each].stalled_since_s == min(state.stalled_since_s for state in of_client)
            del self.written[each]

    def shares(self) -> dict[ShareHolder, float]:
        """Returns the bytes of each client, divided by its weight."""
        shares = dict.fromkeys(HOLDERS, 0.0)
        for key, state in self.written.items():
            shares[holder_of(key)] += state.num_bytes / holder_of(key).weight
        return shares

    def look(self) -> None:
        """All connections are looked at."""
        for key in list(self.table):
            state = self.written[key]
            if state.num_left < state.num_left_at_look:
                state.stalled_since_s = self.now_s
            state.num_left_at_look = state.num_left
            self.table.update(key, state.num_left, self.now_s)


@given(steps=STEPS)
def test_unsent_bytes_stay_within_their_bounds(steps: list[tuple[str, int, int, float]]) -> None:
    """Whatever clients do, the table keeps both bounds; the client with the most bytes makes room."""
    simulation = Simulation()
    for what, key, number, wait_s in steps:
        simulation.step(what, key, number, wait_s)
        num_bytes = [state.num_bytes for state in simulation.written.values()]
        assert set(simulation.table) == set(simulation.written)
        assert simulation.table.num_bytes == sum(num_bytes)
        assert all(each <= LIMITS.max_per_connection for each in num_bytes)
        assert sum(num_bytes) <= LIMITS.max_bytes or len(num_bytes) == 1


@given(
    honest=st.lists(st.integers(1, 20), max_size=3),
    steps=st.lists(st.tuples(st.sampled_from(["write", "receive"]), st.integers(0, 9), st.integers(1, 40))),
)
def test_a_client_below_its_half_loses_nothing(honest: list[int], steps: list[tuple[str, int, int]]) -> None:
    """However a greedy client reads on its connections, another one whose bytes are fewer keeps all of them.

    The other one reads nothing at all, and has at most 60 of 120 bytes.
    """
    table: UnsentTable[str] = UnsentTable(UnsentLimits(60, 120, 1_000.0))
    for number, size in enumerate(honest):
        table.add(f"honest {number}", HOLDERS[0], size, size, 0.0)
    for now_s, (what, number, size) in enumerate(steps, 1):
        name = f"greedy {number}"
        if what == "write":
            table.add(name, HOLDERS[1], size, size, now_s)
        elif name in table:
            table.update(name, 0, now_s)
        assert not any(each.startswith("honest") for each in table.take_excess())
    assert sum(each.startswith("honest") for each in table) == len(honest)


def test_one_that_receives_outlives_one_that_does_not() -> None:
    """Of two connections of a client, the older one, which has received something, stays."""
    table: UnsentTable[str] = UnsentTable(LIMITS)
    table.add("reads", HOLDERS[0], 50, 50, 0.0)
    table.add("stalls", HOLDERS[0], 50, 50, 1.0)
    table.update("reads", 49, 2.0)
    table.update("stalls", 50, 2.0)
    table.add("new", HOLDERS[0], 50, 50, 3.0)
    assert table.take_excess() == ["stalls"]


def test_keys_of_one_tenant_count_together() -> None:
    """Also if they have several weights: the tenant with the most bytes makes room, not the key with the most."""
    table: UnsentTable[str] = UnsentTable(LIMITS)
    table.add("first key", ShareHolder("greedy", 1.0), 30, 30, 0.0)
    table.add("second key", ShareHolder("greedy", 1.5), 30, 30, 1.0)
    table.add("other", ShareHolder("other"), 50, 50, 2.0)
    assert table.take_excess() == ["first key"]


@pytest.mark.parametrize(("num_bytes", "fits"), [(200, True), (201, False)])
def test_one_connection_may_have_its_maximum(num_bytes: int, *, fits: bool) -> None:
    """A connection alone may have its own maximum, even if that is above the maximum of all."""
    table: UnsentTable[str] = UnsentTable(UnsentLimits(200, 100, 10.0))
    assert table.add("alone", HOLDERS[0], num_bytes, num_bytes, 0.0) == fits
    assert table.take_excess() == []
    assert len(table) == fits
