"""Texts that are longer than the model's maximum: the answer says which were cut, or the error which was refused."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, metric
from tests.integration.gateway.job_client import JobClient
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.model, pytest.mark.slow, pytest.mark.leaves_anything]

LONG, LONGER = "word " * 300, "other " * 400
COUNT = "x-truncated-inputs"


@pytest.mark.timeout(180)
async def test_an_answer_says_what_was_cut(cluster: GatewayCluster) -> None:
    """On each route, at once, from the cache and as a job; one test, as a worker takes seconds to load."""
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(cache_bytes=10_000_000), cluster.start_worker("minilm")
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=60)
    check_refusals(gateway)  # first: a cached vector needs no tokenizer
    await check_answers(gateway, worker)
    check_jobs(gateway)


def post(gateway: GatewayProcess, route: str, body: object, **headers: str) -> httpx.Response:
    """Posts a body, which must be accepted."""
    answer = plain_http.post(gateway.url + route, json=body, headers=headers, timeout=60)
    assert answer.status_code in (200, 202), answer.text
    return answer


def check_refusals(gateway: GatewayProcess) -> None:
    """Checks that `truncate: false` names the text: in any entry of the request, beside cached ones, and in a job."""
    texts = ["short"] * 40
    texts[37] = LONG
    assert post(gateway, "/embed", {"texts": ["cached"], "truncate": False}).status_code == 200
    for route, body in (
        ("/embed", {"texts": texts}),
        ("/embed", {"inputs": texts}),
        ("/v1/embeddings", {"input": texts, "model": "minilm"}),
        ("/embed", {"texts": ["cached"] * 37 + texts[37:]}),
    ):
        refused = plain_http.post(gateway.url + route, json=body | {"truncate": False}, timeout=60)
        assert refused.status_code in (400, 422)
        assert "Input 37: 302 tokens, and the maximum is 256" in refused.text
    partial = post(gateway, "/embed", {"texts": ["a", LONG], "truncate": False, "on_error": "null"}).json()
    assert ([each is None for each in partial["embeddings"]], partial["errors"][0]["index"]) == ([False, True], 1)
    assert "truncated" not in partial


async def check_answers(gateway: GatewayProcess, worker: Program) -> None:
    """Checks the header of each route, and the list in native answers; twice, as the second time is from the cache."""
    texts = ["one", LONG, "three", LONGER]
    num_run = 0.0
    for from_cache in (False, True):
        answer = post(gateway, "/embed", {"texts": texts})
        assert (answer.headers[COUNT], answer.json()["truncated"]) == ("2", [1, 3])
        if from_cache and metric(worker, "redbatch_inputs_total") != num_run:  # the look-up took too long
            await wait_until(lambda: is_cached(gateway, texts), "all are found")
        for route, body, count in (
            ("/batch_embed", {"texts": texts}, "2"),
            ("/embed", {"inputs": texts}, "2"),
            ("/embed_all", {"inputs": LONG}, "1"),
            ("/similarity", {"inputs": {"source_sentence": LONG, "sentences": ["a", LONG]}}, "2"),
            ("/v1/embeddings", {"input": texts, "model": "minilm"}, "2"),
            ("/embed", {"texts": ["one", "three"]}, None),
            ("/tokenize", {"inputs": LONG}, None),
        ):
            assert post(gateway, route, body).headers.get(COUNT) == count, route
        await wait_until(lambda: is_cached(gateway, texts), "all vectors are cached")
        num_run = metric(worker, "redbatch_inputs_total")
    some = post(gateway, "/embed", {"texts": ["new", LONG, LONGER + "and new", "three"]}).json()
    assert some["truncated"] == [1, 2]
    assert post(gateway, "/embed", {"text": LONG}).json()["truncated"] == [0]
    assert "truncated" not in post(gateway, "/embed", {"text": "short"}).json()
    text = LONG + "end"  # which only a cut at the left keeps
    lefts = [{"text": text, "truncation_direction": "left"}, {"inputs": text, "truncation_direction": "Left"}]
    native, teis, right = (post(gateway, "/embed", each).json() for each in (*lefts, {"text": text}))
    assert native["embedding"] == teis[0] != right["embedding"]


def is_cached(gateway: GatewayProcess, texts: list[str]) -> bool:
    """Whether these texts are answered from the cache; the answer must say in any case which of them were cut."""
    before = gateway.metric("redbatch_cache_hits_total")
    answer = post(gateway, "/embed", {"texts": texts})
    assert (answer.headers[COUNT], answer.json()["truncated"]) == ("2", [1, 3])
    return gateway.metric("redbatch_cache_hits_total") == before + len(texts)


def check_jobs(gateway: GatewayProcess) -> None:
    """Checks that pages of a job's results list the texts of the page that were cut, by their index in the job."""
    client, texts = JobClient(gateway), ["short"] * 70
    texts[2] = texts[40] = texts[41] = LONG
    for answer in (client.post({"texts": texts}), post(gateway, "/embed", {"texts": texts}, prefer="respond-async")):
        new_job = answer.json()
        job = client.wait_until_ended(new_job)
        assert (job["status"], job["truncated_inputs"]) == ("done", 3)
        assert client.get(new_job["result_url"], accept="application/x-npy").headers[COUNT] == "3"
        pages = {query: client.get(new_job["result_url"] + query).json() for query in ("", "?offset=41&limit=5")}
        assert [page["truncated"] for page in pages.values()] == [[2, 40, 41], [41]]
        assert "truncated" not in client.get(new_job["result_url"] + "?offset=50").json()
    refused: dict[str, Any] = client.post_lines(texts, query={"truncate": "false"}).json()
    job = client.wait_until_ended(refused)
    assert [(each["index"], "302 tokens" in each["message"]) for each in job["errors"]] == [
        (2, True),
        (40, True),
        (41, True),
    ]
