"""Reading a body: its pieces, and the memory that they hold in all and of their holder's share."""

from __future__ import annotations

from typing import Any, cast

import pytest
from starlette.requests import ClientDisconnect

from api.http.body import BodyLimits, BodyUnreadError, read_body
from api.http.client_connection import CLIENT, ClientConnection
from api.http.protocol import COMPLETE_BODY
from api.memory_budget import SMALL_BYTES, HeldMemory, MemoryBudget
from api.tenants import ShareHolder
from shared.errors import TooManyBodiesError

HEADERS = {"content-type": "application/json"}
MAX_BYTES = 10 * SMALL_BYTES


class ArrivingRequest:
    """A request whose body arrives in pieces; one that has a single piece has come with its head."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.client = ClientConnection()
        arrived = {COMPLETE_BODY: bytearray(pieces[0])} if len(pieces) == 1 else {}
        self.scope = {"state": {CLIENT: self.client, **arrived}}

    async def receive(self) -> dict[str, object]:
        """Returns the next piece."""
        return {"type": "http.request", "body": self._pieces.pop(0), "more_body": bool(self._pieces)}


async def read(budget: MemoryBudget, *pieces: bytes, holder: str = "", max_bytes: int = MAX_BYTES) -> HeldMemory | None:
    """Reads a body, whose pieces must be those that arrived; returns the memory that it holds."""
    limits = BodyLimits(max_bytes, 10.0, budget, ShareHolder(holder), "max_body_bytes")
    found, memory = await read_body(cast("Any", ArrivingRequest(*pieces)), HEADERS, limits)
    assert found == list(pieces)
    return memory


async def test_a_small_body_in_one_piece_holds_nothing() -> None:
    """The usual body costs no reservation, and is never refused."""
    budget = MemoryBudget(1)
    for _ in range(3):
        assert await read(budget, b"x" * SMALL_BYTES) is None
    assert budget.num_bytes == 0


@pytest.mark.parametrize("pieces", [(b"x" * 3 * SMALL_BYTES,), (b"x",) * 5, (b"x" * SMALL_BYTES,) * 4])
async def test_other_bodies_hold_their_bytes_until_they_are_released(pieces: tuple[bytes, ...]) -> None:
    """Large ones, and all that arrive in parts."""
    budget = MemoryBudget(MAX_BYTES)
    memory = await read(budget, *pieces)
    assert memory is not None
    assert budget.num_bytes == sum(map(len, pieces))
    memory.release()
    assert budget.num_bytes == 0


async def test_a_body_whose_client_has_left_is_not_read() -> None:
    """It would become a job, or an error in the log, for a client that has left."""
    request = ArrivingRequest(b"x")
    request.client.leave()
    limits = BodyLimits(MAX_BYTES, 10.0, MemoryBudget(1), ShareHolder(""), "max_body_bytes")
    with pytest.raises(ClientDisconnect):
        await read_body(cast("Any", request), HEADERS, limits)


@pytest.mark.parametrize("pieces", [(b"x" * 7 * SMALL_BYTES,), (b"x" * SMALL_BYTES,) * 7])
async def test_a_body_without_memory_is_refused_and_holds_nothing(pieces: tuple[bytes, ...]) -> None:
    """The bodies before it keep theirs, and small ones are still read."""
    budget = MemoryBudget(MAX_BYTES)
    first = await read(budget, b"x" * 4 * SMALL_BYTES)
    with pytest.raises(BodyUnreadError) as caught:
        await read(budget, *pieces)
    assert isinstance(caught.value.error, TooManyBodiesError)
    assert "max_bodies_bytes" in caught.value.error.message
    assert budget.num_bytes == 4 * SMALL_BYTES
    await read(budget, b"x", b"y")
    assert first is not None


async def test_a_body_over_its_limit_holds_nothing() -> None:
    """Also if that is known only once parts of it have arrived."""
    budget = MemoryBudget(MAX_BYTES)
    with pytest.raises(BodyUnreadError, match="max_body_bytes"):
        await read(budget, b"xxx", b"xxx", max_bytes=5)
    assert budget.num_bytes == 0


async def test_a_holder_leaves_memory_to_the_bodies_of_others() -> None:
    """Bodies of one holder have four fifths of the memory at most; another one's large body is read then."""
    budget = MemoryBudget(MAX_BYTES)
    body = b"x" * (SMALL_BYTES + 1)
    for _ in range(6):
        await read(budget, body, holder="greedy")
    with pytest.raises(BodyUnreadError):
        await read(budget, body, body, holder="greedy")
    await read(budget, body, holder="other")
