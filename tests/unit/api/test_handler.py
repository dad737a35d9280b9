"""What a request leaves behind when it is refused."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from fastapi import Request

from api import server
from api.dialects.quantization import OutputType
from api.dialects.request import InferenceRequest, InferenceResult
from api.handler import _with_facts, respond
from api.http.client_connection import CLIENT, ClientConnection
from api.http.protocol import COMPLETE_BODY
from api.routes import DIALECTS
from api.settings import GatewaySettings
from api.state import State
from bench.http_only import ConstantDispatcher
from shared.messages import OPS, SCORE
from shared.usage_counts import UsageCounts

SMALL, LARGE = b'{"text": 5}', b"x" * 3_000_000


def refuse_queue(_model: str | None) -> None:
    """Fails, as no code should."""
    raise ZeroDivisionError


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize(
    ("body", "status", "of_model"),
    [(SMALL, 400, None), (LARGE, 413, None), (b'{"text": "a"}', 500, refuse_queue), (b'{"text": "a"}', 200, None)],
    ids=["invalid", "too large", "fault", "served"],
)
async def test_nothing_of_a_request_waits_for_the_garbage_collector(
    body: bytes, status: int, of_model: Callable[[str | None], None] | None, *, complete: bool
) -> None:
    """It runs rarely: with a reference cycle in each, 160 refused uploads would keep 300 MB."""

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    with patch.object(server, "Queues", ConstantDispatcher):
        state = State(GatewaySettings(), ConstantDispatcher(), UsageCounts(), None)  # type: ignore[arg-type]
    if of_model is not None:
        state.queues.of_model = of_model  # type: ignore[method-assign, assignment]
    scope = {"type": "http", "method": "POST", "path": "/embed", "headers": [], "client": ("127.0.0.1", 1)}
    arrived = {COMPLETE_BODY: bytearray(body)} if complete else {}
    request = Request(scope | {"state": {CLIENT: ClientConnection(), **arrived}})
    request._receive = receive
    left = weakref.ref(request)
    gc.collect()
    gc.disable()
    try:
        answer = await respond(request, state, DIALECTS["/embed"])
        del request
        assert left() is None
    finally:
        gc.enable()
    assert answer.status_code == status


@pytest.mark.parametrize("output_type", ["float", "int8", "binary", "base64"])
@pytest.mark.parametrize("op", OPS)
async def test_only_requests_that_need_facts_are_completed_with_them(op: str, output_type: OutputType) -> None:
    """A request that needs none is answered without a look at the workers, and would be the same with it."""
    request = InferenceRequest(("a",), 1_000, op=op, output_types=(output_type,))
    queue: Any = object()  # any use of it fails
    for is_cosine in (False, True):
        if request.needs_facts:
            with pytest.raises(AttributeError):
                await _with_facts(queue, request, InferenceResult(()), is_cosine=is_cosine and op != SCORE)
        else:
            assert await _with_facts(queue, request, InferenceResult(()), is_cosine=is_cosine) is request
