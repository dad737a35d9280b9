"""Answers that are read while they are sent."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from typing import Any, cast

from starlette.requests import ClientDisconnect

from api.http.client_connection import CLIENT, ClientConnection
from api.http.streamed_answer import streamed_answer


class Part(bytearray):
    """A part that a weak reference may follow."""


async def test_no_part_is_kept_once_it_is_sent() -> None:
    """A client may read the rest for minutes; what it has read already takes no memory then."""
    living: list[weakref.ref[Part]] = []

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3):
            assert [each() for each in living] == [None] * len(living)
            part = [Part(10)]
            living.append(weakref.ref(part[0]))
            yield cast("Any", part.pop())

    scope: Any = {"state": {CLIENT: ClientConnection()}}
    body = (await streamed_answer(scope, parts(), {}, "application/x-npy")).body_iterator
    sizes = []
    async for part in body:
        sizes.append(len(part))
        del part
    assert sizes == [10] * 3


async def test_a_client_that_leaves_while_a_part_is_read_is_no_error() -> None:
    """Its part need not be read any more, and nothing is logged as a failure of the gateway."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"x"
        raise ClientDisconnect

    scope: Any = {"state": {CLIENT: ClientConnection()}}
    body = (await streamed_answer(scope, parts(), {}, "application/x-npy")).body_iterator
    assert [each async for each in body] == [b"x"]


async def test_nothing_is_read_for_a_client_that_has_left() -> None:
    """The iterator ends with the part that was read before."""
    client, read = ClientConnection(), []

    async def parts() -> AsyncIterator[bytes]:
        for number in range(3):
            read.append(number)
            yield b"x"

    scope: Any = {"state": {CLIENT: client}}
    body = (await streamed_answer(scope, parts(), {}, "application/x-npy")).body_iterator
    async for _ in body:
        client.leave()
    assert read == [0]
