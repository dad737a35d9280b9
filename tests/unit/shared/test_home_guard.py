"""What becomes of the connections of a queue when one of them leads to another Redis."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from shared.home import Server
from shared.home_guard import ALIVE_S, HomeGuard

pytestmark = pytest.mark.asyncio

HOME, OTHER = Server("1", "a"), Server("2", "b")


class Connection:
    """A connection over which Redis has answered at a time."""

    def __init__(self, answered_at: float = -inf, server: str = "") -> None:
        self.answered_at = answered_at
        self.server = server
        self.was_cut = False

    def reset(self) -> None:
        """Records that the connection was reset."""
        self.was_cut = True


async def connect_nowhere() -> None:
    """Makes no connection."""


@pytest.mark.parametrize(("age_s", "moves"), [(ALIVE_S - 1, False), (ALIVE_S + 1, True), (inf, True)])
async def test_the_home_lives_as_long_as_it_answers(age_s: float, moves: bool) -> None:
    """Open connections that are silent do not keep a queue from the Redis that is there."""
    old, new = Connection(asyncio.get_running_loop().time() - age_s), Connection()
    guard, reported = HomeGuard("q", [old, new], connect_nowhere), 0

    def on_move() -> None:
        nonlocal reported
        reported += 1

    guard.watch(on_move)
    guard.admit(old, HOME, is_new=True)
    assert bool(guard.admit(new, OTHER, is_new=True)) == (not moves)
    assert (old.was_cut, new.was_cut, reported) == (moves, False, int(moves))


async def test_a_connection_that_leads_elsewhere_later_takes_the_others_with_it() -> None:
    """Something between that keeps connections open has moved them, so they say nothing about the first Redis."""
    now = asyncio.get_running_loop().time()
    connections = [Connection(now), Connection(now)]
    guard = HomeGuard("q", connections, connect_nowhere)
    for each in connections:
        guard.admit(each, HOME, is_new=True)
    guard.admit(connections[0], OTHER, is_new=False)
    assert [each.was_cut for each in connections] == [False, True]
    assert "another Redis" in guard.admit(connections[1], HOME, is_new=True)


async def test_a_home_that_became_a_replica_is_left() -> None:
    """Connections over which it is only read would make it count as alive, and its successor would be refused."""
    connections = [Connection(asyncio.get_running_loop().time()), Connection()]
    guard = HomeGuard("q", connections, connect_nowhere)
    guard.admit(connections[0], HOME, is_new=True)
    assert "a replica" in guard.admit(Connection(), HOME._replace(is_master=False), is_new=True)
    assert [each.was_cut for each in connections] == [False, False]
    assert "a replica" in guard.admit(connections[1], HOME._replace(is_master=False), is_new=False)
    assert [each.was_cut for each in connections] == [True, True]


async def test_a_successor_is_looked_for_after_the_home_has_died() -> None:
    """Another master may have been there first, and with few connections none may lead to the successor by itself."""
    looks = 0

    async def connect() -> None:
        nonlocal looks
        looks += 1
        guard.admit(Connection(), Server("3", "c", "a"), is_new=True)

    connection = Connection()
    guard = HomeGuard("q", [connection], connect)
    for _ in range(5):
        guard.admit(connection, HOME, is_new=False)
        await asyncio.sleep(0)
    assert looks == 0
    guard.admit(connection, OTHER, is_new=True)
    for _ in range(5):
        if not connection.was_cut:
            guard.admit(connection, OTHER, is_new=False)
        await asyncio.sleep(0)
    assert (looks, connection.was_cut) == (1, True), "it was found"
    await guard.stop()


async def test_connections_to_another_server_than_the_master_are_cut() -> None:
    """Those to the master stay, and so do those of which no server is known yet."""
    connections = [Connection(server=each) for each in ("a:1", "b:1", "", "a:1")]
    HomeGuard("q", connections, connect_nowhere).reset_others("b:1")
    assert [each.was_cut for each in connections] == [True, False, False, True]
