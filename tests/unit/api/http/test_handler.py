"""What a request leaves behind in memory once it is answered: nothing that only a search for garbage would find."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, cast

import pytest

from api.dialects.request import Asked
from api.http.protocol import PEER, WHOLE, Peer
from api.dialects.native import Native
from api.http.handler import serve
from api.settings import GatewaySettings
from api.state import State
from shared.errors import DeadlineExceeded

if TYPE_CHECKING:
    from starlette.types import Message

REQUESTS = 50


class Late:
    """Queues in which all answers are errors, as those that come too late are."""

    name = "q"

    def named(self, _model: str | None) -> Late:
        """Returns itself."""
        return self

    async def answer(self, _asked: Asked, _request_id: str) -> None:
        """Raises what a future holds, which this frame refers to."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(DeadlineExceeded("No answer in time."))
        await future


async def ask(body: bytes) -> int:
    """Asks, and returns the status."""
    found: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        found.append(message.get("status", 0))

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/embed", "headers": [], "client": None}
    scope["state"] = {PEER: Peer(), WHOLE: True}
    state = State(GatewaySettings(), cast("Any", Late()), cast("Any", None))
    await serve(scope, receive, send, state, Native())
    return found[0]


@pytest.mark.parametrize(("body", "status"), [(b'{"text": "a"}', 504), (b'{"text": ""}', 400)])
async def test_a_request_that_is_refused_leaves_no_circle(body: bytes, status: int) -> None:
    """An error's frames may refer to the error; with them its body would stay until it is searched for."""
    assert await ask(body) == status
    gc.collect()
    gc.disable()
    try:
        for _ in range(REQUESTS):
            await ask(body)
        assert gc.collect() < REQUESTS
    finally:
        gc.enable()
