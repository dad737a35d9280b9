"""The answers to a client of jobs: about jobs that are not there, keys of deleted ones, and quotas."""

from __future__ import annotations

import asyncio
import io

import numpy as np
import pytest

from shared.tenants import Quota
from tests import plain_http
from tests.integration.gateway.conftest import NewKey
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of
from tests.integration.gateway.job_client import JobClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.timeout(90)]


def test_a_deleted_job_no_longer_has_its_idempotency_key(served: GatewayProcess) -> None:
    """The same request makes a new job, and so does another request with the key; the new job has the key then."""
    client = JobClient(served)
    first = client.job_of(client.post({"texts": ["a", "b"]}, idempotency_key="again"))
    client.wait_until_ended(first)
    assert client.delete(first["status_url"]).json()["status"] == "deleted"
    second = client.job_of(client.post({"texts": ["a", "b"]}, idempotency_key="again"))
    assert second["id"] != first["id"]
    assert client.wait_until_ended(second)["done"] == 2
    assert client.job_of(client.post({"texts": ["a", "b"]}, idempotency_key="again"))["id"] == second["id"]
    client.delete(second["status_url"])
    third = client.job_of(client.post_lines(["c"], idempotency_key="again"))
    assert client.wait_until_ended(third)["n"] == 1


async def test_a_cancelled_job_no_longer_has_its_idempotency_key(cluster: GatewayCluster) -> None:
    """Concurrent requests with the key make one new job."""
    gateway = await cluster.start_gateway()
    client = JobClient(gateway)
    first = client.job_of(client.post({"texts": ["a"] * 40}, idempotency_key="again"))
    assert client.delete(first["status_url"]).json()["status"] == "cancelled"
    answers = await asyncio.gather(
        *(asyncio.to_thread(client.post, {"texts": ["a"] * 40}, idempotency_key="again") for _ in range(4))
    )
    [new_id] = {client.job_of(each)["id"] for each in answers}
    assert new_id != first["id"]
    await cluster.start_worker()
    assert client.wait_until_ended(client.job_of(answers[0]))["done"] == 40


@pytest.mark.parametrize("key", ["", "a b", "a" * 256], ids=["empty", "blank", "long"])
def test_an_invalid_idempotency_key_is_refused(served: GatewayProcess, key: str) -> None:
    """An empty one too, in each way to submit a job: each attempt would make another job."""
    client = JobClient(served, idempotency_key=key)
    asynchronous = {"idempotency-key": key, "prefer": "respond-async"}
    for answer in (
        client.post({"text": "a"}),
        client.post_lines(["a"]),
        plain_http.post(f"{served.url}/embed", json={"text": "a"}, headers=asynchronous),
    ):
        error = error_of(answer)
        assert (answer.status_code, error["code"]) == (400, "invalid_request")
        assert error["message"].startswith(
            "Idempotency-Key: send 1 to 255 visible ASCII characters, the same whenever "
        )


def test_a_model_of_embeddings_has_no_jobs_of_pairs(served: GatewayProcess) -> None:
    """The error says what it takes, and which requests compare the vectors of pairs."""
    client = JobClient(served)
    for answer in (
        client.post({"query": "a", "documents": ["b"]}),
        client.post_lines([{"query": "a", "text": "b"}]),
    ):
        error = error_of(answer)
        assert (answer.status_code, error["code"]) == (400, "unsupported_operation")
        assert (
            'Send the request to POST /jobs with {"texts": [...]}. For the cosines of its vectors' in error["message"]
        )


def test_the_error_of_an_unknown_job_names_what_may_hide_it(served: GatewayProcess) -> None:
    """It is the same for a job of another tenant, for one that has expired, and for a queue that is not there."""
    ann = JobClient(served, x_tenant="ann")
    queue, _, _ = ann.job_of(ann.post({"text": "mine"}))["id"].rpartition(".")
    new_job = ann.job_of(ann.post({"text": "mine"}))
    paths = (new_job["status_url"], f"/jobs/{queue}.{'0' * 32}", f"/jobs/nowhere.{'0' * 32}")
    [message] = {error_of(JobClient(served, x_tenant="bob").get(path))["message"] for path in paths}
    assert ("job_ttl_s" in message, "tenant" in message) == (True, True)
    ann.wait_until_ended(new_job)


def test_a_npy_file_says_how_many_inputs_of_its_job_have_no_vector(served: GatewayProcess) -> None:
    """Also if the file holds a part of the results."""
    client = JobClient(served)
    new_job = client.job_of(client.post({"texts": ["a", "", "b", ""]}))
    client.wait_until_ended(new_job)
    for query in ("", "?limit=1"):
        answer = client.get(new_job["result_url"] + query, accept="application/x-npy")
        assert answer.headers["x-failed-inputs"] == "2"


@pytest.mark.parametrize("offset", [2, 3, 1_000])
def test_a_page_beyond_the_last_result_is_empty(served: GatewayProcess, offset: int) -> None:
    """It has the offset of the request, which was another one; `n` shows where the results end."""
    client = JobClient(served)
    new_job = client.job_of(client.post({"texts": ["a", "b"]}))
    client.wait_until_ended(new_job)
    url = f"{new_job['result_url']}?offset={offset}"
    page = client.get(url).json()
    assert page == {"id": new_job["id"], "n": 2, "offset": offset, "embeddings": [], "errors": [], "next_url": None}
    answer = client.get(url, accept="application/x-npy")
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert np.load(io.BytesIO(answer.content)).shape == (0, 384)


@pytest.mark.parametrize("accept", ["application/json", "application/x-npy"])
def test_a_page_without_results_is_refused(served: GatewayProcess, accept: str) -> None:
    """`limit=0` is refused as one above the maximum is, with the bounds; it was read as 1."""
    client = JobClient(served)
    new_job = client.job_of(client.post({"text": "a"}))
    client.wait_until_ended(new_job)
    answer = client.get(f"{new_job['result_url']}?limit=0", accept=accept)
    assert answer.status_code == 400
    assert "limit: send a whole number" in error_of(answer)["message"]
    assert " 1" in error_of(answer)["message"]


async def test_the_error_of_a_quota_names_the_limit(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """Of a tenant that has a rate and a daily quota: the one that is exceeded, with its figure."""
    key = await new_key(Quota(tokens_per_s=1, burst_tokens=50, daily_tokens=90))
    gateway, _ = await asyncio.gather(isolated_cluster.start_gateway(auth="on"), isolated_cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")

    def send(chars: int) -> tuple[int, str]:
        headers = {"x-api-key": key}
        answers = [
            plain_http.post(f"{gateway.url}/embed", json={"text": "x" * chars}, headers=headers, timeout=30),
            JobClient(gateway, x_api_key=key).post({"text": "x" * chars}),
        ]
        if answers[0].status_code == 200:
            return 200, ""
        [message] = {error_of(each)["message"].partition(": try again")[0] for each in answers}
        assert [each.status_code for each in answers] == [429, 429]
        return 429, message

    assert gateway.embed({"text": "x" * 160}, x_api_key=key).status_code == 200
    assert send(160) == (429, "The tenant's rate limit of 1 tokens per second is exceeded")
    assert send(320) == (
        429,
        "The tenant has too few of its 90 tokens left for this day, which began at 00:00 UTC",
    )
