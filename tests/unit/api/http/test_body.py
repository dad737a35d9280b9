"""The room that bodies have."""

from __future__ import annotations

from api.http.body import SMALL_BYTES, Room


def test_large_bodies_share_a_room_and_small_ones_take_none() -> None:
    """As a body grows past the bound it takes all of its bytes, and gives back as many."""
    room = Room(10 * SMALL_BYTES)
    assert room.grow(SMALL_BYTES, 4 * SMALL_BYTES)
    assert room.grow(5 * SMALL_BYTES, SMALL_BYTES)
    assert not room.grow(0, 5 * SMALL_BYTES)
    assert room.grow(0, 4 * SMALL_BYTES)
    room.give_back(6 * SMALL_BYTES)
    room.give_back(SMALL_BYTES)
    assert room.grow(0, 6 * SMALL_BYTES)
    assert not room.grow(0, 2 * SMALL_BYTES)


def test_one_body_always_finds_room() -> None:
    """Or one that is larger than the room would never be read."""
    room = Room(1)
    assert room.grow(0, 2 * SMALL_BYTES)
    assert room.grow(2 * SMALL_BYTES, SMALL_BYTES)
    assert not room.grow(0, 2 * SMALL_BYTES)
