"""Pairs that are scored in requests, for API keys that allow no jobs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest

from redbatch.embed.gateway_client import GatewayClient, RequestRefusedError
from redbatch.embed.readers import Content
from redbatch.embed.requests import BATCH_TEXTS, RequestEmbedder
from redbatch.embed.session import Embedded
from redbatch.rerank.score_route import ScoreRoute


def answer(request: httpx.Request) -> httpx.Response:
    """Answers with the lengths of both texts of a pair; a pair with the text "bad" fails the request."""
    assert request.url.path == "/score"
    body: dict[str, Any] = json.loads(request.content)
    if "bad" in body["text_2"]:
        return httpx.Response(500, json={"error": {"code": "input_failed", "message": "no"}})
    if body["text_1"][0] == "wrong":
        return httpx.Response(400, json={"error": {"code": "unsupported_operation", "message": "no"}})
    if "long" in body["text_2"] and not body["truncate"]:
        return httpx.Response(400, json={"error": {"code": "invalid_request", "message": "too long"}})
    assert (body["truncation_side"], body["use_activation"], body["priority"]) == ("left", False, "bulk")
    assert ("instruction" in body) == body["text_1"][0].startswith("instructed")
    scores = [len(first) * 10 + len(second) for first, second in zip(body["text_1"], body["text_2"], strict=True)]
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)]
    return httpx.Response(200, json={"data": data}, headers={"x-truncated-inputs": "2"})


def run(contents: list[Content], **fields: object) -> Embedded:
    """Returns the scores of pairs."""

    async def embed() -> Embedded:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://gateway") as client:
            route = ScoreRoute({"truncation_direction": "left", **fields}, raw=True)
            return await RequestEmbedder(GatewayClient(client), route, 2).embed(0, contents, lambda _: None)

    return asyncio.run(embed())


def test_a_pair_that_fails_does_not_fail_the_others() -> None:
    """The request is halved until the pair is alone: only it has an error, with its index."""
    contents: list[Content] = [{"query": "q", "text": "t" * (index % 7 + 1)} for index in range(BATCH_TEXTS + 3)]
    contents[5] = {"query": "q", "text": "bad"}
    found = run(contents)
    assert found.errors == {5: "input_failed: no"}
    expected = [np.nan if index == 5 else 10.0 + index % 7 + 1 for index in range(len(contents))]
    np.testing.assert_array_equal(found.vectors[:, 0], expected)
    assert found.num_truncated > 0


def test_a_pair_that_is_too_long_is_an_error_without_truncation() -> None:
    """Only it has the error. By default it is truncated."""
    contents: list[Content] = [{"query": "q", "text": each} for each in ("a", "long", "b")]
    assert run(contents, truncate=False).errors == {1: "invalid_request: too long"}
    assert run(contents).errors == {}


def test_a_request_has_the_instruction() -> None:
    """If there is one."""
    assert run([{"query": "instructed", "text": "t"}], instruction="Find animals.").errors == {}


@pytest.mark.parametrize("truncate", [True, False])
def test_what_no_request_can_do_ends_the_run(truncate: bool) -> None:
    """A model that scores no pairs."""
    with pytest.raises(ExceptionGroup) as caught:
        run([{"query": "wrong", "text": "t"}], truncate=truncate)
    assert caught.group_contains(RequestRefusedError, match="unsupported_operation")
