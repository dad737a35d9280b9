"""Jobs over HTTP: accepted now, answered later."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest
import redis
import redis.asyncio

from tests import plain_http
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    log_lines,
    null_vector,
    vector_bytes,
)
from tests.integration.gateway.job_client import JobClient
from tests.processes import Processes
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

NPY = {"accept": "application/x-npy"}


def test_a_job_runs_to_its_end(served: GatewayProcess) -> None:
    """A job gets a 202 at once, its counts and times when it has ended, and its vectors in order."""
    client, texts = JobClient(served), [f"job {i}" for i in range(100)]
    answer = client.post({"texts": texts})
    new_job = client.job_of(answer)
    assert len(new_job["id"].rpartition(".")[2]) == 32
    job = client.wait_until_ended(new_job)
    assert (job["status"], job["n"], job["done"], job["failed"], job["errors"]) == ("done", 100, 100, 0, [])
    assert job["created_at"] <= job["started_at"] <= job["finished_at"] < job["kept_until"]
    assert abs(job["created_at"] - time.time()) < 60
    assert client.vectors(new_job) == list(map(null_vector, texts))


def test_one_text_is_a_job(served: GatewayProcess) -> None:
    """A single text may be a job."""
    client = JobClient(served)
    new_job = client.job_of(client.post({"text": "alone"}))
    assert client.wait_until_ended(new_job)["n"] == 1
    assert client.vectors(new_job) == [null_vector("alone")]


def test_a_job_may_be_sent_as_lines(served: GatewayProcess) -> None:
    """A job may be sent as NDJSON, in chunks that are cut anywhere; pages of its results can be selected."""
    client, texts = JobClient(served), [f"line {i} \u00e9\u4e16" for i in range(3_000)]
    body = b"".join(json.dumps(text if i % 2 else {"text": text}).encode() + b"\n" for i, text in enumerate(texts))
    new_job = client.job_of(client.post_lines(body[at : at + 777] for at in range(0, len(body), 777)))
    assert client.wait_until_ended(new_job)["done"] == 3_000
    assert client.vectors(new_job) == list(map(null_vector, texts))
    page = client.get(new_job["result_url"] + "?offset=2990&limit=5").json()
    assert (page["offset"], page["next_url"]) == (2_990, f"{new_job['result_url']}?offset=2995&limit=5")
    assert list(map(vector_bytes, page["embeddings"])) == list(map(null_vector, texts[2_990:2_995]))
    for path, most in (("status_url", "wait=60"), ("result_url", "limit=1000")):
        name, _, maximum = most.partition("=")
        assert client.get(f"{new_job[path]}?{most}").status_code == 200
        answer = client.get(f"{new_job[path]}?{name}={int(maximum) + 1}")
        assert (answer.status_code, maximum in error_of(answer)["message"]) == (400, True)
    assert client.get(new_job["result_url"] + "?limit=1001", **NPY).status_code == 200


def test_results_may_be_read_as_a_numpy_file(served: GatewayProcess) -> None:
    """The results, or a part of them, are available as a valid .npy file."""
    client, texts = JobClient(served), [f"file {i}" for i in range(2_500)]
    new_job = client.job_of(client.post({"texts": texts}))
    client.wait_until_ended(new_job)
    answer = client.get(new_job["result_url"], **NPY)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-npy")
    assert int(answer.headers["content-length"]) == len(answer.content)
    whole = np.load(io.BytesIO(answer.content))
    assert (whole.shape, whole.dtype) == ((2_500, 384), np.dtype("<f4"))
    assert [row.tobytes() for row in whole] == list(map(null_vector, texts))
    part = np.load(io.BytesIO(client.get(new_job["result_url"] + "?offset=2400&limit=50", **NPY).content))
    assert [row.tobytes() for row in part] == list(map(null_vector, texts[2_400:2_450]))


def test_results_that_are_deleted_while_they_are_sent_end_early(served: GatewayProcess) -> None:
    """The connection is closed before the announced length, and the log has a line, but no traceback."""
    client = JobClient(served)
    new_job = client.job_of(client.post({"texts": [f"deleted {i}" for i in range(6_000)]}))
    client.wait_until_ended(new_job)
    num_lines = len(served.program.output.splitlines())
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", served.port))
        connection.sendall(b"GET %b HTTP/1.1\r\nAccept: application/x-npy\r\n\r\n" % new_job["result_url"].encode())
        received = connection.recv(65_536)
        assert received.startswith(b"HTTP/1.1 200 ")
        client.delete(new_job["status_url"])
        num_bytes = len(received)
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65_536):
                num_bytes += len(part)
    assert num_bytes < 6_000 * 384 * 4
    lines = served.program.output.splitlines()[num_lines:]
    assert not [line for line in lines if "Traceback" in line or '"level":"error"' in line]
    assert [line for line in lines if '"answer cut short"' in line]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "Send text, texts, input, inputs, or query with documents: one of them."),
        ({"texts": []}, 400, "empty"),
        ({"text": "a", "texts": ["b"]}, 400, "one of them"),
        ({"texts": "a"}, 400, "texts"),
        ({"text": "a", "priority": "soon"}, 400, "priority"),
        ({"text": "a", "model": "none"}, 404, "no such model"),
        ({"text": "a", "prompt": "b"}, 400, "did you mean prompt_name?"),
        ({"text": "a", "dimensions": 0}, 400, "dimensions"),
    ],
)
def test_an_invalid_job_is_refused(served: GatewayProcess, body: object, status: int, message: str) -> None:
    """An invalid body gets the same errors as on /embed."""
    answer = JobClient(served).post(body)
    assert answer.status_code == status
    assert message in error_of(answer)["message"]


def test_invalid_lines_are_refused(served: GatewayProcess) -> None:
    """The error names the invalid line, even after 5,000 valid ones; no lines and wrong headers are refused as well."""
    client = JobClient(served)
    answer = client.post_lines([*(f"text {i}" for i in range(5_000)), 12, "a"])
    assert answer.status_code == 400
    assert "Line 5001" in error_of(answer)["message"]
    assert client.post_lines([]).status_code == 400
    answer = client.post_lines(["a"], content_type="text/plain")
    assert (answer.status_code, "application/x-ndjson" in error_of(answer)["message"]) == (415, True)
    assert client.post_lines(["a"], x_priority="soon").status_code == 400
    assert client.post_lines(["a"], idempotency_key="a b").status_code == 400


async def test_too_many_or_too_long_lines_are_refused(cluster: GatewayCluster, raw: redis.asyncio.Redis) -> None:
    """Bodies of lines have their own limits, whether their length is announced or not; refused ones leave no keys."""
    gateway = await cluster.start_gateway(max_job_inputs=1_000, max_job_body_bytes=200_000)
    client = JobClient(gateway)
    line = json.dumps("x" * 1_000).encode() + b"\n"
    for lines, parts in (
        (["a"] * 1_001, ("1000", "max_job_inputs")),
        (iter([b'"a"\n' * 500] * 3), ("1000", "max_job_inputs")),
        (["x" * 1_000] * 250, ("200000 bytes", "max_job_body_bytes")),
        (iter([line * 10] * 25), ("200000 bytes", "max_job_body_bytes")),
    ):
        refused = client.post_lines(lines)
        assert (refused.status_code, error_of(refused)["code"]) == (413, "too_large")
        assert all(part in error_of(refused)["message"] for part in parts)
    refused = client.post({"texts": ["a"] * 1_001})
    assert "1000: send fewer at once, or raise the setting max_job_inputs " in error_of(refused)["message"]
    assert [key async for key in raw.scan_iter(match=cluster.keys.job("*"))] == []
    new_job = client.job_of(client.post_lines(["a"] * 1_000))
    assert client.delete(new_job["status_url"]).json()["status"] == "cancelled"


def test_only_invalid_texts_of_a_job_fail(served: GatewayProcess) -> None:
    """Valid texts of a job have vectors; the job, its pages and its file report the invalid ones, with their errors."""
    client, texts = JobClient(served), [f"t{i}" for i in range(50)]
    texts[0], texts[17], texts[49] = "", "x" * 200_000, ""
    for new_job in (client.job_of(client.post({"texts": texts})), client.job_of(client.post_lines(texts))):
        job = client.wait_until_ended(new_job)
        assert (job["status"], job["done"], job["failed"]) == ("done", 47, 3)
        expected = [(0, "invalid_request"), (17, "too_large"), (49, "invalid_request")]
        assert [(each["index"], each["code"]) for each in job["errors"]] == expected
        page = client.get(new_job["result_url"]).json()
        assert [(each["index"], each["code"]) for each in page["errors"]] == expected
        for index, vector in enumerate(page["embeddings"]):
            assert (vector is None) == (index in (0, 17, 49))
            assert vector is None or vector_bytes(vector) == null_vector(texts[index])
        whole = np.load(io.BytesIO(client.get(new_job["result_url"], **NPY).content))
        assert sorted(np.flatnonzero(np.isnan(whole).any(axis=1))) == [0, 17, 49]
    for refused in (client.post({"texts": ["", ""]}), client.post_lines(["x" * 200_000, ""])):
        assert (refused.status_code, error_of(refused)["code"]) == (400, "nothing_to_run")


def test_an_idempotency_key_returns_the_same_job(served: GatewayProcess) -> None:
    """The same texts with the same key return the same job, also as lines; other texts with the key are refused."""
    client = JobClient(served)
    first = client.job_of(client.post({"texts": ["a", "b"]}, idempotency_key="key-1"))
    assert client.job_of(client.post({"texts": ["a", "b"]}, idempotency_key="key-1"))["id"] == first["id"]
    assert client.job_of(client.post_lines(["a", {"text": "b"}], idempotency_key="key-1"))["id"] == first["id"]
    assert client.job_of(client.post({"texts": ["a", "b"]}, idempotency_key="key-2"))["id"] != first["id"]
    other = client.post({"texts": ["a", "c"]}, idempotency_key="key-1")
    assert (other.status_code, error_of(other)["code"]) == (422, "idempotency_key_reused")
    job = client.wait_until_ended(first)
    again = client.job_of(client.post({"texts": ["a", "b"]}, idempotency_key="key-1"))
    assert (again["id"], again["status"]) == (first["id"], job["status"])


@pytest.mark.parametrize(
    "path", ["/jobs/none", "/jobs/none.0", "/jobs/{queue}." + "0" * 32, "/jobs/..%2f", "/jobs/x/result"]
)
def test_an_unknown_job_is_not_found(served: GatewayProcess, path: str) -> None:
    """An unknown or malformed job id, and an unknown path, get a 404 or 405."""
    queue = JobClient(served).job_of(JobClient(served).post({"text": "a"}))["id"].rpartition(".")[0]
    for answer in (JobClient(served).get(path.format(queue=queue)), JobClient(served).delete(path.format(queue=queue))):
        assert answer.status_code in (404, 405)
    answer = JobClient(served).get(f"/jobs/{queue}.{'0' * 32}")
    assert error_of(answer)["code"] == "job_not_found"


def test_an_unknown_parameter_is_refused(served: GatewayProcess) -> None:
    """A misspelt parameter is a 400 that names it and the nearest one; OpenAI's and TEI's routes and probes ignore it.

    What cannot be the name of a parameter is not repeated.
    """
    client = JobClient(served)
    new_job = client.job_of(client.post({"text": "a"}))
    for path, message in (
        (new_job["status_url"] + "?inputs=3", "inputs: there is no such parameter; this route takes wait."),
        (new_job["result_url"] + "?ofset=3", "ofset: there is no such parameter; did you mean offset?"),
        (
            new_job["result_url"] + "s?x%20y=3",
            "query: there is no such parameter; this route takes offset, limit, raw_scores.",
        ),
    ):
        answer = client.get(path)
        assert (answer.status_code, error_of(answer)["message"]) == (400, message)
    assert "no such parameter; this route takes none." in client.delete(new_job["status_url"] + "?wait=1").text
    for path in ("/v1/models?ofset=3", "/info?ofset=3", "/livez?ofset=3"):
        assert client.get(path).status_code == 200


def test_a_job_belongs_to_its_tenant(served: GatewayProcess) -> None:
    """Other tenants get a 404 for a job, and the same idempotency key creates another job."""
    ann, bob = JobClient(served, x_tenant="ann"), JobClient(served, x_tenant="bob")
    new_job = ann.job_of(ann.post({"text": "mine"}))
    ann.wait_until_ended(new_job)
    for path in (new_job["status_url"], new_job["result_url"]):
        assert ann.get(path).status_code == 200
        assert bob.get(path).status_code == 404
        assert JobClient(served).get(path).status_code == 404
    assert bob.delete(new_job["status_url"]).status_code == 404
    mine = ann.job_of(ann.post({"text": "mine"}, idempotency_key="one"))
    assert bob.job_of(bob.post({"text": "mine"}, idempotency_key="one"))["id"] != mine["id"]


async def test_waiting_clients_learn_of_a_cancel(cluster: GatewayCluster) -> None:
    """Without a worker a job stays queued without a result; clients that wait for it get the cancel at once.

    50 waiting clients use two connections of the gateway to Redis.
    """
    gateway = await cluster.start_gateway()
    client = JobClient(gateway)
    new_job = client.job_of(client.post({"texts": ["a"] * 40}))
    assert client.get(new_job["status_url"]).json()["status"] == "queued"
    early = client.get(new_job["result_url"])
    assert (early.status_code, error_of(early)["code"], early.headers["retry-after"]) == (409, "job_unfinished", "1")
    start = time.monotonic()
    assert client.get(new_job["status_url"] + "?wait=1").json()["status"] == "queued"
    assert 0.9 < time.monotonic() - start < 15
    async with plain_http.client(timeout=30) as waiter:
        waiting = [asyncio.create_task(waiter.get(f"{gateway.url}{new_job['status_url']}?wait=20")) for _ in range(50)]
        await asyncio.sleep(0.5)
        with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
            names = [each["name"].rpartition(":") for each in raw.client_list()]
        num_connections = Counter(gateway for gateway, _, purpose in names if purpose in ("jobs", "upload"))
        assert max(num_connections.values()) == 2
        start = time.monotonic()
        assert (await waiter.delete(f"{gateway.url}{new_job['status_url']}")).json()["status"] == "cancelled"
        answers = await asyncio.gather(*waiting)
        assert {answer.json()["status"] for answer in answers} == {"cancelled"}
        assert time.monotonic() - start < 15, "before the time that they wait is over"
    cancelled = client.get(new_job["result_url"])
    assert (cancelled.status_code, error_of(cancelled)["code"]) == (410, "job_gone")
    assert client.delete(new_job["status_url"]).json()["status"] == "cancelled"


def polls_jobs(cluster: GatewayCluster) -> bool:
    """Whether a gateway polls for the end of a job that a client waits for, which reads nothing but its status."""
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
        return any(each["cmd"] == "hget" for each in raw.client_list() if each["name"].endswith(":jobs"))


async def test_waiting_clients_do_not_delay_a_drain(cluster: GatewayCluster) -> None:
    """At a drain, clients that wait for a job get its current status at once, and may use another gateway."""
    gateway = await cluster.start_gateway()
    client = JobClient(gateway)
    new_job = client.job_of(client.post({"text": "a"}))
    async with plain_http.client(timeout=30) as waiter:
        waiting = asyncio.create_task(waiter.get(f"{gateway.url}{new_job['status_url']}?wait=60"))
        await wait_until(partial(polls_jobs, cluster), "the gateway polls for the end of the job")
        assert await gateway.program.stop() == 0  # within the time that it has, in which the job does not end
        assert (await waiting).json()["status"] == "queued"
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
        raw.delete(*raw.scan_iter(match=f"{cluster.keys.prefix}*"))


async def test_a_job_survives_its_gateway(cluster: GatewayCluster) -> None:
    """If the gateway that accepted a job is killed, another one returns it for the same idempotency key."""
    first, second, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_gateway(), cluster.start_worker())
    new_job = JobClient(first).job_of(JobClient(first).post({"texts": ["a", "b"]}, idempotency_key="k"))
    first.program.kill()
    client = JobClient(second)
    assert client.job_of(client.post({"texts": ["a", "b"]}, idempotency_key="k"))["id"] == new_job["id"]
    assert client.wait_until_ended(new_job)["status"] == "done"
    assert client.vectors(new_job) == [null_vector("a"), null_vector("b")]


async def test_results_expire(cluster: GatewayCluster) -> None:
    """After job_ttl_s the job is not found."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(job_ttl_s=3), cluster.start_worker())
    client = JobClient(gateway)
    new_job = client.job_of(client.post({"text": "a"}))
    assert client.wait_until_ended(new_job)["status"] == "done"
    await wait_until(lambda: client.get(new_job["status_url"]).status_code == 404, "the job has expired")


async def test_a_job_expires_without_a_worker(cluster: GatewayCluster) -> None:
    """Workers end jobs whose time is over; while none lives, the gateway from which a client requests one does."""
    gateway = await cluster.start_gateway(job_timeout_s=3)
    client = JobClient(gateway)
    new_job = client.job_of(client.post({"texts": ["a"] * 3}))
    assert client.get(new_job["status_url"]).json()["status"] == "queued"
    job = client.get(new_job["status_url"] + "?wait=6").json()
    assert (job["status"], job["done"], job["failed"]) == ("expired", 0, 0)
    assert [line["n"] for line in log_lines(gateway.program) if line["msg"] == "jobs expired"] == [1]
    assert client.delete(new_job["status_url"]).json()["status"] == "deleted"


async def test_a_job_expires(cluster: GatewayCluster) -> None:
    """An expired job has the vectors of the texts that ran, and deadline_exceeded for the others."""
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(job_timeout_s=4), cluster.start_worker("simulated:base_ms=0,item_ms=50", max_batch_size=8)
    )
    client = JobClient(gateway)
    new_job = client.job_of(client.post({"texts": [f"t{i}" for i in range(400)]}))
    job = client.wait_until_ended(new_job)
    assert job["status"] == "expired"
    assert 0 < job["done"] < 400
    page = client.get(new_job["result_url"]).json()
    late = [error["index"] for error in page["errors"]]
    assert {error["code"] for error in page["errors"]} == {"deadline_exceeded"}
    assert len(late) == 400 - job["done"]
    for index, vector in enumerate(page["embeddings"]):
        assert (vector is None) == (index in late)
        assert vector is None or vector_bytes(vector) == null_vector(f"t{index}")
    answer = client.get(new_job["result_url"], **NPY)
    assert answer.headers["x-failed-inputs"] == str(len(late))
    assert sorted(np.flatnonzero(np.isnan(np.load(io.BytesIO(answer.content))).any(axis=1))) == late


async def test_a_job_counts_for_its_tenant(cluster: GatewayCluster) -> None:
    """All texts of a job count at once at every gateway, and only once if it is sent again."""
    gateways = await asyncio.gather(
        *(cluster.start_gateway(tenant_tokens_per_s=1, tenant_burst_tokens=100) for _ in range(2))
    )
    await cluster.start_worker()
    await wait_until(lambda: not any(each.missing() for each in gateways), "the gateways see the worker")
    ann, bob = (JobClient(gateways[0], x_tenant=name) for name in ("ann", "bob"))
    also_ann = JobClient(gateways[1], x_tenant="ann")
    few = {"texts": ["a few words"] * 10}
    new_job = ann.job_of(ann.post(few, idempotency_key="k"))
    assert ann.wait_until_ended(new_job)["done"] == 10
    assert ann.job_of(also_ann.post(few, idempotency_key="k"))["id"] == new_job["id"]
    many = {"texts": ["a few words"] * 1_000}  # more than the bucket holds: accepted if the bucket is full
    refused = also_ann.post(many)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) > 10
    assert bob.wait_until_ended(bob.job_of(bob.post(many)))["done"] == 1_000
    after = plain_http.post(f"{gateways[0].url}/embed", json={"text": "a"}, headers={"x-tenant": "bob"}, timeout=30)
    assert (after.status_code, error_of(after)["code"]) == (429, "rate_limited")
    assert [each.errors("rate_limited", cluster.queue) for each in gateways] == [1, 1]


async def test_jobs_are_refused_if_redis_is_full_or_stopped(
    cluster: GatewayCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """If Redis is full or stopped, jobs get a 503 and none is stored."""
    with Server() as server:
        async with Processes(tmp_path_factory.mktemp("full")) as processes:
            separate = GatewayCluster(processes, server.url, cluster.queue)
            gateway = await separate.start_gateway(redis_timeout_s=10)
            client = JobClient(gateway)
            with redis.Redis.from_url(server.url, protocol=2) as raw:
                raw.config_set("maxmemory", raw.info("memory")["used_memory"] + 4_000_000)
                full = client.post_lines([{"input": f"text {i} " + "x" * 1_000} for i in range(8_000)])
                assert full.status_code == 503, full.text
                raw.config_set("maxmemory", int(raw.info("memory")["used_memory"] / 0.9))
                more = client.post_lines([{"input": 1}])
                assert (more.status_code, error_of(more)["code"]) == (503, "jobs_full"), more.text
                assert gateway.errors("jobs_full", separate.queue) >= 1
                assert raw.zcard(separate.keys.jobs) == 0
            server.stop()
            refused = client.post({"text": "a"})
            assert (refused.status_code, error_of(refused)["code"]) == (503, "redis_unreachable")
