"""Which connections stay open: never more than the limits, and the oldest that wait are closed first."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.connection_table import (
    MAX_SPARES,
    SMALL_HEAD_BYTES,
    ConnectionTable,
    Place,
    address_group,
    max_connections_of,
)
from api.settings import GatewaySettings
from api.settings_groups import ConnectionLimits

LIMITS = ConnectionLimits(
    max_connections=4,
    max_per_address=2,
    max_heads_bytes=20_000,
    max_unfinished_heads_bytes=15_000,
    head_timeout_s=10.0,
)
MANY = ConnectionLimits(
    max_connections=100,
    max_per_address=50,
    max_heads_bytes=30_000,
    max_unfinished_heads_bytes=20_000,
    head_timeout_s=10.0,
)
"""Those of tests about heads only."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["connect", "connect", "head", "head", "request", "linger", "answer", "close"]),
        st.sampled_from(["a", "b", "c", "proxy"]),
        st.integers(0, 9),
        st.floats(0, 5),
    ),
    max_size=80,
)


class Simulation:
    """A table, and what its connections are known to do."""

    def __init__(self) -> None:
        self.table: ConnectionTable[int] = ConnectionTable(LIMITS)
        self.open: dict[int, tuple[str, Place[int]]] = {}
        self.heads: dict[int, int] = {}
        self.waits_since: dict[int, int] = {}
        self.now_s, self.steps = 0.0, 0

    def connect(self, client: str) -> None:
        """A client connects. What is closed for it waited longest, of the client's connections or of all."""
        self.steps += 1
        counted = {key: name for key, (name, place) in self.open.items() if not place.is_spare}
        own = [key for key, name in counted.items() if name == client]
        admission = self.table.admit(self.steps, client, self.now_s, is_proxy=client == "proxy")
        crowd = own if client != "proxy" and len(own) >= LIMITS.max_per_address else list(counted)
        is_full = crowd is own or len(counted) >= LIMITS.max_connections
        waiting = [key for key in crowd if key in self.waits_since]
        if is_full and waiting:
            assert admission.closed == min(waiting, key=self.waits_since.__getitem__)
        elif admission.closed is not None:
            assert is_full
            assert self.open[admission.closed][1].is_spare
            assert not self.open[admission.closed][1].is_busy
        assert admission.place.is_spare == (is_full and not waiting)
        if admission.closed is not None:
            self.forget(admission.closed)
        if admission.place.is_open:
            self.open[self.steps] = (client, admission.place)
            self.heads[self.steps] = 0
            self.waits_since[self.steps] = self.steps

    def forget(self, key: int) -> None:
        """A connection is not open any more."""
        del self.open[key], self.heads[key]
        self.waits_since.pop(key, None)

    def step(self, what: str, client: str, which: int, wait_s: float) -> None:
        """Something happens after a while; heads that are overdue then are closed before it."""
        self.now_s += wait_s
        for key in self.table.take_overdue(self.now_s):
            assert not self.open[key][1].is_busy, "a connection with a request was closed"
            self.forget(key)
        if what == "connect":
            self.connect(client)
        elif self.open:
            self.change(what, list(self.open)[which % len(self.open)])

    def change(self, what: str, key: int) -> None:
        """Something happens on a connection."""
        self.steps += 1
        _, place = self.open[key]
        if what == "head":
            self.grow(key, place)
        elif what == "request":
            self.table.start_request(place)
            self.waits_since.pop(key, None)
        elif what == "linger" and place.is_busy:
            excess = self.table.start_linger(place)
            self.waits_since.setdefault(key, self.steps)
            self.check_room(excess, {each: self.heads[each] for each in self.open})
        elif what == "answer" and place.is_busy:
            self.table.end_request(place)
            self.waits_since.setdefault(key, self.steps)
            assert self.table.update_head(place, 0, self.now_s) == []
            self.heads[key] = 0
            if self.steps % 2:
                self.table.expect_head(place, self.now_s)
        elif what == "close":
            self.table.remove(place)
            self.table.remove(place)
            self.forget(key)

    def grow(self, key: int, place: Place[int]) -> None:
        """A head grows, or is complete. If there is no room, heads of others that wait are refused."""
        self.heads[key] = len(str(key)) * 4_000
        excess = self.table.update_head(place, self.heads[key], self.now_s, is_complete=False)
        if place.is_busy:
            assert excess in ([], [place]), "it takes the room of no other"
        self.check_room(excess, dict(self.heads))

    def check_room(self, excess: list[Place[int]], heads: dict[int, int]) -> None:
        """Heads were refused, in this order, only while there was no room; each of the client with the most bytes."""
        for each in excess:
            assert (
                self.num_bytes() > LIMITS.max_heads_bytes or self.num_unfinished() > LIMITS.max_unfinished_heads_bytes
            )
            key = each.owner
            assert (each.is_open, each.head_bytes) == (True, 0)
            if not each.is_busy and key in self.waits_since and not each.is_spare:
                totals = Counter[str]()
                for other in self.waits_since:
                    totals[self.open[other][0]] += self.counted(other, is_unfinished=True)
                assert totals[self.open[key][0]] == max(totals.values()) > 0
            self.heads[key] = 0
        assert self.num_bytes() <= LIMITS.max_heads_bytes
        assert self.num_unfinished() <= LIMITS.max_unfinished_heads_bytes
        assert all(self.open[key][1].head_bytes == number for key, number in self.heads.items())
        assert len(excess) == sum(number != self.heads[key] for key, number in heads.items())

    def counted(self, key: int, *, is_unfinished: bool = False) -> int:
        """Returns the bytes of a connection's heads, unless they are small, or not of those that are unfinished."""
        is_counted = self.heads[key] > SMALL_HEAD_BYTES and not (is_unfinished and self.open[key][1].is_spare)
        return self.heads[key] if is_counted and (key in self.waits_since or not is_unfinished) else 0

    def num_bytes(self) -> int:
        """Returns the bytes of all heads that count."""
        return sum(self.counted(key) for key in self.open)

    def num_unfinished(self) -> int:
        """Returns the bytes of those heads that are unfinished."""
        return sum(self.counted(key, is_unfinished=True) for key in self.open)


@given(STEPS)
def test_limits_hold_and_the_oldest_give_way(steps: list[tuple[str, str, int, float]]) -> None:
    """No limit is ever exceeded, no connection with a request is closed, and no place is lost."""
    simulation = Simulation()
    for step in steps:
        simulation.step(*step)
        counted = Counter(name for name, place in simulation.open.values() if not place.is_spare)
        assert counted.total() <= LIMITS.max_connections
        assert all(number <= LIMITS.max_per_address for name, number in counted.items() if name != "proxy")
        assert len(simulation.table) == len(simulation.open) <= LIMITS.max_connections + MAX_SPARES
    for _, place in list(simulation.open.values()):
        simulation.table.remove(place)
    assert (len(simulation.table), simulation.table.next_deadline_s) == (0, None)


def test_a_head_has_its_time_from_its_first_part() -> None:
    """Further parts of a head do not extend its time; a connection without a head has it from the connect."""
    table: ConnectionTable[str] = ConnectionTable(LIMITS)
    silent = table.admit("silent", "a", 0.0).place
    kept = table.admit("kept", "b", 0.0).place
    table.start_request(kept)
    table.end_request(kept)
    assert table.take_overdue(9.9) == []
    table.update_head(kept, 10, 9.9)
    table.update_head(silent, 10, 9.9)
    assert table.take_overdue(10.0) == ["silent"]
    table.update_head(kept, 20, 19.0)
    assert table.next_deadline_s == 19.9
    assert table.take_overdue(19.9) == ["kept"]


def test_spare_places_are_for_newer_connections() -> None:
    """While all connections have requests, there are MAX_SPARES newer ones; the oldest of these gives way."""
    table: ConnectionTable[int] = ConnectionTable(LIMITS)
    for number in range(4):
        table.start_request(table.admit(number, f"client {number}", 0.0).place)
    spares = [table.admit(number, "prober", 1.0) for number in range(MAX_SPARES)]
    assert all(each.place.is_spare and each.closed is None for each in spares)
    assert table.admit(100, "prober", 2.0).closed == 0
    for each in spares[1:]:
        table.start_request(each.place)
    assert table.admit(101, "prober", 2.0).closed == 100
    table.start_request(table.admit(102, "prober", 2.0).place)
    refused = table.admit(103, "prober", 2.0)
    assert (refused.place.is_open, refused.closed) == (False, None)


def test_the_rest_of_a_request_has_its_time_from_the_answer() -> None:
    """A body, or a next head, of which a part came before the answer, has its time from then on."""
    table: ConnectionTable[str] = ConnectionTable(LIMITS)
    for name, is_read in (("read", True), ("unread", False)):
        place = table.admit(name, name, 0.0).place
        table.start_request(place)
        table.update_head(place, 10, 5.0)
        assert table.take_overdue(99.0) == []
        table.end_request(place)
        if not is_read:
            table.expect_head(place, 100.0)
    assert table.take_overdue(109.9) == []
    assert table.take_overdue(110.0) == ["unread"]


def test_the_limit_of_open_files_bounds_the_connections() -> None:
    """A quarter of the files is left for Redis, logs and the admin port; no limit is below 1."""
    assert max_connections_of(8_192, sys.maxsize) == 8_192
    assert max_connections_of(8_192, 400) == 300
    assert max_connections_of(1, 1) == 1
    assert GatewaySettings().connection_limits(300).max_per_address == 150
    assert GatewaySettings(max_address_ratio=0.1).connection_limits(1).max_per_address == 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:0:0:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("", "10.0.0.1", False),
    ],
)
def test_one_client_of_ipv6_has_many_addresses(one: str, other: str, *, same: bool) -> None:
    """All addresses of a /64 network are one client."""
    assert (address_group(one) == address_group(other)) == same


def heads_of(table: ConnectionTable[str], client: str, num_bytes: int, number: int) -> list[Place[str]]:
    """Opens connections of a client, each with half a head that there is room for."""
    places = [table.admit(f"{client} {each}", client, 0.0).place for each in range(number)]
    assert [table.update_head(place, num_bytes, 0.0) for place in places] == [[]] * number
    return places


def test_the_client_with_the_most_bytes_of_heads_makes_room() -> None:
    """Its oldest half head is refused for that of another client; a small one is refused for none, and takes none."""
    table: ConnectionTable[str] = ConnectionTable(MANY)
    (small,) = heads_of(table, "stranger", SMALL_HEAD_BYTES, 1)
    greedy = heads_of(table, "stranger", 6_000, 3)
    newer = table.admit("newer", "client", 0.0).place
    assert table.update_head(newer, 5_000, 0.0) == greedy[:1]
    assert table.update_head(newer, 8_000, 0.0) == []
    assert table.update_head(newer, 9_000, 0.0) == greedy[1:2]
    assert [place.head_bytes for place in (small, *greedy, newer)] == [SMALL_HEAD_BYTES, 0, 0, 6_000, 9_000]
    assert all(place.is_open for place in greedy)


def test_heads_of_requests_have_more_room() -> None:
    """A head that has arrived is refused for no half heads, and half heads leave it room."""
    table: ConnectionTable[str] = ConnectionTable(MANY)
    heads_of(table, "stranger", 5_000, 4)
    complete = table.admit("complete", "client", 0.0).place
    assert table.update_head(complete, 9_000, 0.0, is_complete=True) == []
    table.start_request(complete)
    assert table.update_head(complete, 9_500, 0.0) == []


def test_a_head_has_no_room_among_those_of_requests() -> None:
    """Heads count until their requests are answered. Such a head is not refused, unless its connection lingers."""
    table: ConnectionTable[str] = ConnectionTable(MANY)
    places = heads_of(table, "client", 9_000, 2)
    for place in places:
        table.start_request(place)
    (third,) = heads_of(table, "client", 9_000, 1)
    table.start_request(third)
    newer = table.admit("newer", "other", 0.0).place
    assert table.update_head(newer, 5_000, 0.0) == [newer]
    assert (newer.is_open, newer.head_bytes) == (True, 0)
    assert table.start_linger(places[1]) == []
    assert table.update_head(newer, 5_000, 0.0) == [places[1]]
    for place in (places[0], third):
        table.update_head(place, 0, 0.0)
        table.end_request(place)
    assert table.update_head(newer, 20_000, 0.0) == []


def test_heads_of_lingering_connections_have_the_room_of_unfinished_ones() -> None:
    """A stranger whose bodies trickle after the refusal keeps no more heads in memory than one with half heads."""
    table: ConnectionTable[str] = ConnectionTable(MANY)
    places = [table.admit(f"{number}", "stranger", 0.0).place for number in range(3)]
    for place in places:
        assert table.update_head(place, 9_000, 0.0, is_complete=True) == []
        table.start_request(place)
    assert [table.start_linger(place) for place in places] == [[], [], places[:1]]


def test_a_head_behind_a_request_counts_as_unfinished_after_the_answer() -> None:
    """Its first part may come with the request, and no further one ever."""
    table: ConnectionTable[str] = ConnectionTable(MANY)
    places = [table.admit(f"{number}", "stranger", 0.0).place for number in range(3)]
    for place in places:
        table.start_request(place)
        assert table.update_head(place, 9_000, 0.0) == []
        table.end_request(place)
        assert table.update_head(place, 9_000, 0.0) == (places[:1] if place is places[2] else [])


def test_requests_behind_an_answer_that_is_unsent_are_no_unfinished_heads() -> None:
    """They count among all heads, and make room for none; the unfinished head behind them does."""
    table: ConnectionTable[str] = ConnectionTable(MANY)
    places = [table.admit(f"{number}", f"client {number}", 0.0).place for number in range(2)]
    for place in places:
        table.start_request(place)
        assert table.update_head(place, 8_000, 0.0, request_bytes=6_000) == []
        table.end_request(place)
        assert table.update_head(place, 8_000, 0.0, request_bytes=6_000) == []
    newer = table.admit("newer", "other", 0.0).place
    assert table.update_head(newer, 5_000, 0.0) == places[:1]
    assert [place.head_bytes for place in (*places, newer)] == [6_000, 14_000, 5_000]


def test_a_head_behind_a_request_takes_the_room_of_no_other_connection() -> None:
    """If there is no room for all heads, a client that does not wait for an answer is refused itself."""
    table: ConnectionTable[str] = ConnectionTable(MANY)
    heads_of(table, "stranger", 6_000, 3)
    pipelining = table.admit("pipelining", "client", 0.0).place
    table.start_request(pipelining)
    assert table.update_head(pipelining, 12_000, 0.0) == []
    assert table.update_head(pipelining, 13_000, 0.0) == [pipelining]


def test_a_lingering_connection_gives_way() -> None:
    """It is answered, and waits for the rest of a body only: a new connection takes its place, and no spare one."""
    table: ConnectionTable[str] = ConnectionTable(LIMITS)
    places = [table.admit(f"a{number}", f"client {number}", 0.0).place for number in range(4)]
    for place in places:
        table.start_request(place)
    table.start_linger(places[2])
    admission = table.admit("newer", "prober", 0.0)
    assert (admission.closed, admission.place.is_spare) == ("a2", False)


def test_the_end_of_a_body_ends_its_time() -> None:
    """An answered request whose body has arrived leaves an idle connection, which has no deadline here."""
    table: ConnectionTable[str] = ConnectionTable(LIMITS)
    place = table.admit("idle", "a", 0.0).place
    table.start_request(place)
    table.end_request(place)
    table.expect_head(place, 0.0)
    table.drop_deadline(place)
    assert (table.next_deadline_s, table.take_overdue(99.0)) == (None, [])
