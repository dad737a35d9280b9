"""Embedding in requests to /embed: the fields of a request, and inputs that fail or are too large together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from redbatch.embed.gateway_client import GatewayClient, RequestRefusedError
from redbatch.embed.requests import BATCH_CHARS, BATCH_TEXTS, EmbedRoute, RequestEmbedder
from redbatch.embed.session import Embedded

TRUNCATED_CHARS = 50
Handler = Callable[[dict[str, Any]], httpx.Response]


def refuse(status: int, code: str) -> httpx.Response:
    """Returns the answer of a gateway that refuses a request."""
    return httpx.Response(status, json={"error": {"code": code, "message": "no", "request_id": "r"}})


def answer(body: dict[str, Any]) -> httpx.Response:
    """Answers with the length of each text; the text "bad" fails, one of TRUNCATED_CHARS is truncated."""
    if "bad" in body["texts"] and body["on_error"] == "fail":
        return refuse(500, "input_failed")
    rows = [None if text == "bad" else [len(text)] for text in body["texts"]]
    errors = [{"index": i, "code": "input_failed", "message": "no"} for i, row in enumerate(rows) if row is None]
    document: dict[str, Any] = {"embeddings": rows}
    if truncated := [i for i, text in enumerate(body["texts"]) if len(text) >= TRUNCATED_CHARS]:
        document["truncated"] = truncated
    return httpx.Response(200, json=document | ({"errors": errors} if body["on_error"] == "null" else {}))


def run(handler: Handler, texts: list[str], **fields: object) -> tuple[Embedded, list[dict[str, Any]]]:
    """Returns what the embedder returns for texts, and the bodies of its requests."""
    bodies: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/embed"
        bodies.append(json.loads(request.content))
        return handler(bodies[-1])

    async def embed() -> Embedded:
        transport = httpx.MockTransport(handle)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            done: list[int] = []
            result = await RequestEmbedder(GatewayClient(client), EmbedRoute(fields), 2).embed(0, texts, done.append)
            assert done[-1] == len(texts)
            return result

    return asyncio.run(embed()), bodies


def test_each_request_has_the_options() -> None:
    """Options are fields of every request, in the bulk lane; a request holds BATCH_TEXTS texts, or BATCH_CHARS."""
    options = {"prompt_name": "document", "truncate": False, "normalize": True, "dimensions": 1}
    texts = ["a"] * (BATCH_TEXTS + 1) + ["b" * BATCH_CHARS] * 2 + ["c" * TRUNCATED_CHARS]
    embedded, bodies = run(answer, texts, **options)
    assert embedded.num_truncated == 3
    assert embedded.vectors[:, 0].tolist() == [len(text) for text in texts]
    assert sorted(len(body["texts"]) for body in bodies) == [1, 1, 1, 1, BATCH_TEXTS]
    for body in bodies:
        assert options.items() <= body.items()
        assert body["priority"] == "bulk"


def test_an_input_that_fails_does_not_fail_the_others() -> None:
    """The request is repeated, and only the input at fault has an error, with its index among all texts."""
    texts = ["a"] * BATCH_TEXTS + ["aa", "bad", "aaa"]
    embedded, bodies = run(answer, texts)
    assert embedded.errors == {BATCH_TEXTS + 1: "input_failed: no"}
    assert np.isnan(embedded.vectors[BATCH_TEXTS + 1]).all()
    assert embedded.vectors[-1].tolist() == [3.0]
    assert len(bodies) == 3


def test_a_request_that_is_too_large_is_split() -> None:
    """It is halved until it fits; a text that does not fit alone has the error."""

    def limit(body: dict[str, Any]) -> httpx.Response:
        return refuse(413, "too_large") if sum(map(len, body["texts"])) > 10 else answer(body)

    embedded, _ = run(limit, ["aaaa", "bbbb", "c" * 11, "dddd"])
    assert embedded.errors == {2: "too_large: no"}
    assert embedded.vectors[[0, 1, 3], 0].tolist() == [4.0] * 3


def test_a_request_that_no_input_explains_is_refused() -> None:
    """An error that stays without the inputs at fault ends the run, with its code and message."""
    with pytest.raises(ExceptionGroup) as caught:
        run(lambda _: refuse(400, "invalid_request"), ["a"])
    assert caught.group_contains(RequestRefusedError, match="400 invalid_request: no")
