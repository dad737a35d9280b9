"""An answered request leaves no reference cycles in memory, which only garbage collection would find."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, cast

import pytest

from api.dialects.native import Native
from api.dialects.request import InferenceRequest
from api.handler import serve
from api.http.client_connection import CLIENT, ClientConnection
from api.http.protocol import BODY_COMPLETE
from api.http.request_log import limited_log
from api.memory_budget import SMALL_BYTES
from api.settings import GatewaySettings
from api.state import State
from api.tenants import ShareHolder
from shared.errors import DeadlineExceededError

if TYPE_CHECKING:
    from starlette.types import Message

REQUESTS = 50


class LateQueues:
    """Queues whose answers all are errors, as for requests that exceed their deadline."""

    name = "q"

    def of_model(self, _model: str | None) -> LateQueues:
        """Returns itself."""
        return self

    async def answer(self, _request: InferenceRequest, _request_id: str, _memory: object) -> None:
        """Raises the error of a future to which this frame refers."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(DeadlineExceededError("No answer in time."))
        await future


def make_state() -> State:
    """Returns the state of a gateway that requires no key, and answers no request."""
    return State(GatewaySettings(), cast("Any", LateQueues()), cast("Any", None))


async def send_request(body: bytes, address: str = "", state: State | None = None) -> int:
    """Sends a request from an address, and returns the status."""
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        statuses.append(message.get("status", 0))

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/embed", "headers": []}
    scope["client"] = (address, 1_234) if address else None
    scope["state"] = {CLIENT: ClientConnection(), BODY_COMPLETE: True}
    await serve(scope, receive, send, state or make_state(), Native())
    return statuses[0]


@pytest.mark.parametrize(("body", "status"), [(b'{"text": "a"}', 504), (b'{"text": ""}', 400)])
async def test_a_refused_request_leaves_no_reference_cycle(body: bytes, status: int) -> None:
    """The frames of an error may refer to the error; such a cycle would keep the body until garbage collection."""
    assert await send_request(body) == status
    gc.collect()
    gc.disable()
    try:
        for _ in range(REQUESTS):
            await send_request(body)
        assert gc.collect() < REQUESTS
    finally:
        gc.enable()
        limited_log.flush()


async def test_large_bodies_are_parsed_in_turns_of_clients() -> None:
    """The body of another client waits for two of the twenty that were there before it."""
    state, body, answered = make_state(), b'{"text": "a"%b}' % (b" " * SMALL_BYTES), list[str]()

    async def send(address: str) -> None:
        assert await send_request(body, address, state) == 504
        answered.append(address)

    await asyncio.gather(*(send(address) for address in ["10.0.0.1"] * 20 + ["10.0.0.2"]))
    assert answered.index("10.0.0.2") <= 2
    assert len(answered) == 21


@pytest.mark.parametrize(("size", "waits"), [(SMALL_BYTES, False), (SMALL_BYTES + 1, True)])
async def test_a_small_body_waits_for_no_turn(size: int, *, waits: bool) -> None:
    """A body that holds no memory, as it is parsed at once, is one that needs no turn."""
    state = make_state()
    async with state.parse_lock.turn(ShareHolder("other")):
        task = asyncio.create_task(send_request(b'{"text": "a"}'.ljust(size), state=state))
        await asyncio.wait([task], timeout=0.2 if waits else 10)
        assert task.done() != waits
    assert await task == 504
