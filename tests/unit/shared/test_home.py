"""Which Redis is the home of a queue's connections."""

from __future__ import annotations

import pytest

from shared.home import ANCESTORS_KEPT, Admission, Home, Server, parse_server

A, B, C = "a" * 40, "b" * 40, "c" * 40
MASTER = Server("run-1", A)
RESTARTED = Server("run-2", C)
PROMOTED = Server("run-3", B, A, 100)
"""A master; its next life, empty; and its replica, promoted."""

SAME, MOVES, REFUSED = Admission.SAME, Admission.MOVES, Admission.REFUSED


def admit(home: Home, *servers: Server, is_alive: bool = True) -> list[Admission]:
    """Admits connections to servers in turn, while other connections reach the home."""
    return [home.admit(server, is_alive=is_alive) for server in servers]


def test_the_first_master_is_the_home() -> None:
    """Others are refused while it lives, and a replica always is."""
    home = Home()
    assert admit(home, PROMOTED._replace(is_master=False), MASTER, MASTER, RESTARTED, MASTER) == [
        *(REFUSED, SAME, SAME, REFUSED, SAME)
    ]


def test_without_a_connection_to_the_home_the_first_master_is_the_next() -> None:
    """So a Redis that restarts without its data is used at once; but its replica is not."""
    home = Home()
    assert admit(home, MASTER) == [SAME]
    assert admit(home, RESTARTED._replace(is_master=False), RESTARTED, is_alive=False) == [REFUSED, MOVES]
    assert admit(home, RESTARTED, MASTER) == [SAME, REFUSED]


def test_a_successor_moves_the_home_though_the_old_one_lives() -> None:
    """Its old master is then refused, and so is the old master's next life."""
    assert admit(Home(), MASTER, PROMOTED, MASTER, RESTARTED, PROMOTED) == [SAME, MOVES, REFUSED, REFUSED, SAME]


def test_the_home_follows_several_promotions() -> None:
    """Back to a former home, too, once it has followed the present one."""
    again = MASTER._replace(replication_id=C, parent_id=B, parent_offset=200)
    assert admit(Home(), MASTER, PROMOTED, again, PROMOTED, again) == [SAME, MOVES, MOVES, REFUSED, SAME]


def test_the_replication_id_of_the_home_may_change() -> None:
    """A master gets another id with its first replica, and is followed by it under each of its ids."""
    renamed = MASTER._replace(replication_id=C)
    assert admit(Home(), MASTER, renamed, PROMOTED._replace(parent_id=C)) == [SAME, SAME, MOVES]
    assert admit(Home(), MASTER, renamed, PROMOTED) == [SAME, SAME, MOVES]


def test_an_empty_restarted_master_is_left_for_the_promoted_replica() -> None:
    """A connection met it first: all processes that knew the old master come together at the replica, and stay."""
    home = Home()
    assert admit(home, MASTER) == [SAME]
    assert admit(home, RESTARTED, is_alive=False) == [MOVES]
    assert admit(home, PROMOTED, RESTARTED, PROMOTED) == [MOVES, REFUSED, SAME]
    assert admit(home, Server("run-4", "d", C, 300)) == [REFUSED], "what follows the one that was left is no successor"


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_successors_the_one_that_followed_further_is_the_home(first: int) -> None:
    """A restarted master that has loaded an old snapshot succeeds itself, but lacks what its replica received since."""
    successors = [RESTARTED._replace(parent_id=A, parent_offset=50), PROMOTED]
    home = Home()
    assert admit(home, MASTER) == [SAME]
    admit(home, successors[first], is_alive=False)
    assert admit(home, successors[1 - first], *successors)[1:] == [REFUSED, SAME]


def test_a_successor_of_the_last_home_is_better_than_one_of_an_earlier_home() -> None:
    """A replica that was promoted long ago, and that few knew, wins nothing by how far it had followed."""
    late = Server("run-5", "d", A, 10_000)
    successor = Server("run-6", C, B, 1)
    assert admit(Home(), MASTER, PROMOTED, successor, late, successor) == [SAME, MOVES, MOVES, REFUSED, SAME]


def test_few_former_homes_are_remembered() -> None:
    """However often the home moves."""
    home = Home()
    admit(home, *(Server(f"run-{i}", f"{i}") for i in range(10 * ANCESTORS_KEPT)), is_alive=False)
    assert len(home._ancestors) == ANCESTORS_KEPT


INFO = (
    b"# Server\r\nrun_id:abc\r\nuptime:1\r\n# Replication\r\nrole:master\r\nmaster_replid:%b\r\nmaster_replid2:%b\r\n"
)


@pytest.mark.parametrize(
    ("info", "server"),
    [
        (INFO % (b"x1", b"0" * 40) + b"second_repl_offset:-1\r\n", Server("abc", "x1")),
        (INFO % (b"x1", b"y0") + b"second_repl_offset:17\r\n", Server("abc", "x1", "y0", 17)),
        (INFO % (b"x1", b"y") + b"second_repl_offset:?\r\n", Server("abc", "x1", "y")),
        (INFO.replace(b"role:master", b"role:slave") % (b"x1", b"y"), Server("abc", "x1", "y", is_master=False)),
        (INFO.replace(b"role", b"?") % (b"x1", b"y"), Server("abc", "x1", "y")),
        (INFO.replace(b"run_id", b"?") % (b"x1", b"y"), None),
        (INFO % (b"", b""), None),
        (b"", None),
        (b"\xff\x00", None),
    ],
)
def test_info_identifies_a_server(info: bytes, server: Server | None) -> None:
    """The replication id and the id of the process do, with the master that it followed; without them it is unknown."""
    assert parse_server(info) == server
