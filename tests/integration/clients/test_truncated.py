"""Each route that scores or classifies says which texts it has cut, with a real reranker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.scoring_models import build_scoring_model
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(180)]

LONG = "word " * 600
BODIES: dict[str, dict[str, Any]] = {
    "/rerank": {"query": "q", "documents": ["a", LONG]},
    "/v1/rerank": {"query": "q", "documents": ["a", LONG], "top_k": None},
    "/v2/rerank": {"query": "q", "documents": ["a", LONG]},
    "/score": {"text_1": "q", "text_2": ["a", LONG]},
    "/classify": {"input": ["a", LONG]},
}
TEI_BODIES: dict[str, dict[str, Any]] = {
    "/rerank": {"query": "q", "texts": ["a", LONG]},
    "/predict": {"inputs": [["a"], ["q", LONG]]},
}


def said_of(path: str, answer: dict[str, Any]) -> object:
    """Returns what an answer says of the texts that were cut."""
    return answer["meta"].get("warnings") if path == "/v2/rerank" else answer["usage"].get("truncated")


async def test_a_text_that_is_too_long_is_reported_or_refused(cluster: GatewayCluster, tmp_path: Path) -> None:
    """In a header on each route, and in the answer of those whose format has a place for it; or it is an error.

    One test, as a worker takes seconds to load.
    """
    folder = build_scoring_model(tmp_path / "reranker")
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(str(folder)))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=60)
    check(gateway, cluster.queue)


def check(gateway: GatewayProcess, model: str) -> None:
    """Checks each body with and without truncation, and one without the long text."""
    for path, body in (*BODIES.items(), *TEI_BODIES.items()):
        is_tei = path in TEI_BODIES and body is TEI_BODIES[path]
        sent = body if is_tei else body | {"model": model}
        answer = plain_http.post(gateway.url + path, json=sent, timeout=60)
        assert (answer.status_code, answer.headers.get("x-truncated-inputs")) == (200, "1"), answer.text
        refused = plain_http.post(gateway.url + path, json=sent | {"truncate": False}, timeout=60)
        assert (refused.status_code, "maximum" in refused.text or "less than" in refused.text) == (
            422 if is_tei else 400,
            True,
        ), refused.text
        if not is_tei:
            warning = ["Truncated to the maximum length: 1."]
            assert said_of(path, answer.json()) == (warning if path == "/v2/rerank" else [1])
            name = next(name for name, value in body.items() if isinstance(value, list))
            short = plain_http.post(gateway.url + path, json=sent | {name: ["a"]}, timeout=60)
            assert (short.status_code, said_of(path, short.json())) == (200, None)
            assert "x-truncated-inputs" not in short.headers
