"""Jobs over HTTP: asked for now, answered later."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import pytest
import redis
import redis.asyncio

from tests import plain_http
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    null_vector,
    vector_bytes,
)
from tests.processes import Processes
from tests.servers import Server, parse_version
from tests.users import REPLICA, password_of, users_are_on
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

NDJSON = {"content-type": "application/x-ndjson"}
NPY = {"accept": "application/x-npy"}


class Client:
    """Asks one gateway for jobs."""

    def __init__(self, gateway: GatewayProcess, **headers: str) -> None:
        self.url = gateway.url
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def post(self, body: object, **headers: str) -> httpx.Response:
        """Posts a job as JSON."""
        named = self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        return plain_http.post(f"{self.url}/jobs", json=body, headers=named, timeout=30)

    def post_lines(self, lines: Sequence[object] | Iterator[bytes], **headers: str) -> httpx.Response:
        """Posts a job as lines."""
        named = self._headers | NDJSON | {name.replace("_", "-"): value for name, value in headers.items()}
        content = (
            lines if isinstance(lines, Iterator) else b"".join(json.dumps(each).encode() + b"\n" for each in lines)
        )
        return plain_http.post(f"{self.url}/jobs", content=content, headers=named, timeout=60)

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Gets a path."""
        return plain_http.get(f"{self.url}{path}", headers=self._headers | headers, timeout=90)

    def delete(self, path: str) -> httpx.Response:
        """Deletes a path."""
        return httpx.delete(
            f"{self.url}{path}", headers=self._headers, verify=plain_http.NO_TLS, trust_env=False, timeout=30
        )

    def taken(self, answer: httpx.Response) -> dict[str, Any]:
        """Returns what is told of a job that was taken."""
        assert answer.status_code == 202, answer.text
        told: dict[str, Any] = answer.json()
        assert told["status_url"] == f"/jobs/{told['id']}"
        assert told["result_url"] == f"/jobs/{told['id']}/result"
        return told

    def ended(self, told: dict[str, Any]) -> dict[str, Any]:
        """Waits until a job has ended; returns what is told of it then."""
        for _ in range(10):
            job: dict[str, Any] = self.get(told["status_url"] + "?wait=10").json()
            if job["status"] not in ("queued", "running"):
                return job
        pytest.fail(f"the job has not ended: {job}")

    def vectors(self, told: dict[str, Any]) -> list[bytes]:
        """Returns all vectors of a job, page by page, each as raw float32."""
        found: list[bytes] = []
        url: str | None = told["result_url"]
        while url is not None:
            page = self.get(url).json()
            assert page["offset"] == len(found)
            found += map(vector_bytes, page["embeddings"])
            url = page["next_url"]
        return found


def test_a_job_from_end_to_end(served: GatewayProcess) -> None:
    """202 at once, its status while it runs, its vectors in order."""
    client, texts = Client(served), [f"job {i}" for i in range(100)]
    answer = client.post({"texts": texts})
    told = client.taken(answer)
    assert len(told["id"].rpartition(".")[2]) == 32
    job = client.ended(told)
    assert (job["status"], job["n"], job["done"], job["failed"], job["errors"]) == ("done", 100, 100, 0, [])
    assert job["created_at"] <= job["started_at"] <= job["finished_at"] < job["kept_until"]
    assert abs(job["created_at"] - time.time()) < 60
    assert client.vectors(told) == list(map(null_vector, texts))


def test_one_text(served: GatewayProcess) -> None:
    """Is a job as well."""
    client = Client(served)
    told = client.taken(client.post({"text": "alone"}))
    assert client.ended(told)["n"] == 1
    assert client.vectors(told) == [null_vector("alone")]


def test_a_job_that_comes_as_lines(served: GatewayProcess) -> None:
    """Its parts are put together as they come, however they are cut."""
    client, texts = Client(served), [f"line {i} \u00e9\u4e16" for i in range(3_000)]
    body = b"".join(
        json.dumps(text if i % 2 else {"text": text, "id": i}).encode() + b"\n" for i, text in enumerate(texts)
    )
    told = client.taken(client.post_lines(body[at : at + 777] for at in range(0, len(body), 777)))
    assert client.ended(told)["done"] == 3_000
    assert client.vectors(told) == list(map(null_vector, texts))
    page = client.get(told["result_url"] + "?offset=2990&limit=5").json()
    assert (page["offset"], page["next_url"]) == (2_990, f"{told['result_url']}?offset=2995&limit=5")
    assert list(map(vector_bytes, page["embeddings"])) == list(map(null_vector, texts[2_990:2_995]))
    assert client.get(told["result_url"] + "?offset=3000").json()["embeddings"] == []


def test_the_vectors_as_a_file(served: GatewayProcess) -> None:
    """NumPy reads it; a part of it has its own head."""
    client, texts = Client(served), [f"file {i}" for i in range(2_500)]
    told = client.taken(client.post({"texts": texts}))
    client.ended(told)
    answer = client.get(told["result_url"], **NPY)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-npy")
    assert int(answer.headers["content-length"]) == len(answer.content)
    whole = np.load(io.BytesIO(answer.content))
    assert (whole.shape, whole.dtype) == ((2_500, 384), np.dtype("<f4"))
    assert [row.tobytes() for row in whole] == list(map(null_vector, texts))
    part = np.load(io.BytesIO(client.get(told["result_url"] + "?offset=2400&limit=50", **NPY).content))
    assert [row.tobytes() for row in part] == list(map(null_vector, texts[2_400:2_450]))


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 400, "either"),
        ({"texts": []}, 400, "empty"),
        ({"text": "a", "texts": ["b"]}, 400, "either"),
        ({"texts": "a"}, 400, "texts"),
        ({"text": "a", "priority": "soon"}, 400, "priority"),
        ({"text": "a", "model": "none"}, 404, "no such model"),
    ],
)
def test_what_is_no_job(served: GatewayProcess, body: object, status: int, said: str) -> None:
    """Is told as on /embed."""
    answer = Client(served).post(body)
    assert answer.status_code == status
    assert said in error_of(answer)["message"]


def test_lines_that_are_no_job(served: GatewayProcess) -> None:
    """The line is named, though others came before it, and nothing is left of them."""
    client = Client(served)
    answer = client.post_lines([*(f"text {i}" for i in range(5_000)), 12, "a"])
    assert answer.status_code == 400
    assert "Line 5001" in error_of(answer)["message"]
    assert client.post_lines([]).status_code == 400
    assert client.post_lines(["a"], content_type="text/plain").status_code == 415
    assert client.post_lines(["a"], x_priority="soon").status_code == 400
    assert client.post_lines(["a"], idempotency_key="a b").status_code == 400


async def test_lines_that_are_too_many_or_too_long(cluster: GatewayCluster, raw: redis.asyncio.Redis) -> None:
    """A body of lines has bounds of its own, announced or not; beyond them nothing is left of what had come."""
    gateway = await cluster.start_gateway(max_job_inputs=1_000, max_job_body_bytes=200_000)
    client = Client(gateway)
    line = json.dumps("x" * 1_000).encode() + b"\n"
    for lines, said in (
        (["a"] * 1_001, "1000"),
        (iter([b'"a"\n' * 500] * 3), "1000"),
        (["x" * 1_000] * 250, "200000 bytes"),
        (iter([line * 10] * 25), "200000 bytes"),
    ):
        refused = client.post_lines(lines)
        assert (refused.status_code, error_of(refused)["code"]) == (413, "too_large")
        assert said in error_of(refused)["message"]
    assert [key async for key in raw.scan_iter(match=cluster.keys.job("*"))] == []
    told = client.taken(client.post_lines(["a"] * 1_000))
    assert client.delete(told["status_url"]).json()["status"] == "cancelled"


def test_texts_that_cannot_be_run_fail_alone(served: GatewayProcess) -> None:
    """The others have their vectors, and the job says which have none, and why."""
    client, texts = Client(served), [f"t{i}" for i in range(50)]
    texts[0], texts[17], texts[49] = "", "x" * 200_000, ""
    for told in (client.taken(client.post({"texts": texts})), client.taken(client.post_lines(texts))):
        job = client.ended(told)
        assert (job["status"], job["done"], job["failed"]) == ("done", 47, 3)
        expected = [(0, "invalid_request"), (17, "too_large"), (49, "invalid_request")]
        assert [(each["index"], each["code"]) for each in job["errors"]] == expected
        page = client.get(told["result_url"]).json()
        assert [(each["index"], each["code"]) for each in page["errors"]] == expected
        for index, vector in enumerate(page["embeddings"]):
            assert (vector is None) == (index in (0, 17, 49))
            assert vector is None or vector_bytes(vector) == null_vector(texts[index])
        whole = np.load(io.BytesIO(client.get(told["result_url"], **NPY).content))
        assert sorted(np.flatnonzero(np.isnan(whole).any(axis=1))) == [0, 17, 49]
    nothing = client.ended(client.taken(client.post({"text": ""})))
    assert (nothing["status"], nothing["failed"]) == ("failed", 1)


def test_an_idempotency_key(served: GatewayProcess) -> None:
    """The same job, also as lines; something else under the key is refused."""
    client = Client(served)
    first = client.taken(client.post({"texts": ["a", "b"]}, idempotency_key="key-1"))
    assert client.taken(client.post({"texts": ["a", "b"]}, idempotency_key="key-1"))["id"] == first["id"]
    assert client.taken(client.post_lines(["a", {"text": "b"}], idempotency_key="key-1"))["id"] == first["id"]
    assert client.taken(client.post({"texts": ["a", "b"]}, idempotency_key="key-2"))["id"] != first["id"]
    other = client.post({"texts": ["a", "c"]}, idempotency_key="key-1")
    assert (other.status_code, error_of(other)["code"]) == (422, "idempotency_key_reused")
    ended = client.ended(first)
    again = client.taken(client.post({"texts": ["a", "b"]}, idempotency_key="key-1"))
    assert (again["id"], again["status"]) == (first["id"], ended["status"])


@pytest.mark.parametrize(
    "path", ["/jobs/none", "/jobs/none.0", "/jobs/{queue}." + "0" * 32, "/jobs/..%2f", "/jobs/x/result"]
)
def test_no_such_job(served: GatewayProcess, path: str) -> None:
    """404, whatever was asked."""
    queue = Client(served).taken(Client(served).post({"text": "a"}))["id"].rpartition(".")[0]
    for answer in (Client(served).get(path.format(queue=queue)), Client(served).delete(path.format(queue=queue))):
        assert answer.status_code in (404, 405)
    answer = Client(served).get(f"/jobs/{queue}.{'0' * 32}")
    assert error_of(answer)["code"] == "job_not_found"


def test_a_job_is_its_owners(served: GatewayProcess) -> None:
    """Others are told that there is none."""
    ann, bob = Client(served, x_tenant="ann"), Client(served, x_tenant="bob")
    told = ann.taken(ann.post({"text": "mine"}))
    ann.ended(told)
    for path in (told["status_url"], told["result_url"]):
        assert ann.get(path).status_code == 200
        assert bob.get(path).status_code == 404
        assert Client(served).get(path).status_code == 404
    assert bob.delete(told["status_url"]).status_code == 404
    mine = ann.taken(ann.post({"text": "mine"}, idempotency_key="one"))
    assert bob.taken(bob.post({"text": "mine"}, idempotency_key="one"))["id"] != mine["id"]


async def test_unfinished_cancelled_and_waited_for(cluster: GatewayCluster) -> None:
    """Without a worker it is queued: no result yet; who waits is told when it is cancelled, at once."""
    gateway = await cluster.start_gateway()
    client = Client(gateway)
    told = client.taken(client.post({"texts": ["a"] * 40}))
    assert client.get(told["status_url"]).json()["status"] == "queued"
    early = client.get(told["result_url"])
    assert (early.status_code, error_of(early)["code"], early.headers["retry-after"]) == (409, "job_unfinished", "1")
    began = time.monotonic()
    assert client.get(told["status_url"] + "?wait=1").json()["status"] == "queued"
    assert 0.9 < time.monotonic() - began < 5
    async with plain_http.client(timeout=30) as many:
        waiting = [asyncio.create_task(many.get(f"{gateway.url}{told['status_url']}?wait=20")) for _ in range(50)]
        await asyncio.sleep(0.5)
        with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
            names = [each["name"].rpartition(":") for each in raw.client_list()]
        held = Counter(gateway for gateway, _, purpose in names if purpose in ("jobs", "upload"))
        assert max(held.values()) == 2
        began = time.monotonic()
        assert (await many.delete(f"{gateway.url}{told['status_url']}")).json()["status"] == "cancelled"
        answers = await asyncio.gather(*waiting)
        assert {answer.json()["status"] for answer in answers} == {"cancelled"}
        assert time.monotonic() - began < 5
    gone = client.get(told["result_url"])
    assert (gone.status_code, error_of(gone)["code"]) == (410, "job_gone")
    assert client.delete(told["status_url"]).json()["status"] == "cancelled"


async def test_who_waits_does_not_hold_up_a_drain(cluster: GatewayCluster) -> None:
    """It is told how far the job is, and may ask another gateway."""
    gateway = await cluster.start_gateway()
    client = Client(gateway)
    told = client.taken(client.post({"text": "a"}))
    async with plain_http.client(timeout=30) as waiter:
        waiting = asyncio.create_task(waiter.get(f"{gateway.url}{told['status_url']}?wait=60"))
        await asyncio.sleep(0.3)
        began = time.monotonic()
        assert await gateway.program.stop() == 0
        assert time.monotonic() - began < 5
        assert (await waiting).json()["status"] == "queued"
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
        raw.delete(*raw.scan_iter(match=f"{cluster.keys.prefix}*"))


async def test_another_gateway_knows_it(cluster: GatewayCluster) -> None:
    """A job is in Redis: the gateway that took it may die, and one asked with the same key finds it."""
    first, second, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_gateway(), cluster.start_worker())
    told = Client(first).taken(Client(first).post({"texts": ["a", "b"]}, idempotency_key="k"))
    first.program.kill()
    client = Client(second)
    assert client.taken(client.post({"texts": ["a", "b"]}, idempotency_key="k"))["id"] == told["id"]
    assert client.ended(told)["status"] == "done"
    assert client.vectors(told) == [null_vector("a"), null_vector("b")]


async def test_results_are_kept_for_their_time(cluster: GatewayCluster) -> None:
    """And then there is no such job."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(job_ttl_s=1), cluster.start_worker())
    client = Client(gateway)
    told = client.taken(client.post({"text": "a"}))
    assert client.ended(told)["status"] == "done"
    await wait_until(lambda: client.get(told["status_url"]).status_code == 404, "it is forgotten")


async def test_a_job_expires(cluster: GatewayCluster) -> None:
    """What had run is there, the rest is told as late."""
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(job_timeout_s=2), cluster.start_worker("simulated:base_ms=0,item_ms=50", max_batch_size=8)
    )
    client = Client(gateway)
    told = client.taken(client.post({"texts": [f"t{i}" for i in range(400)]}))
    job = client.ended(told)
    assert job["status"] == "expired"
    assert 0 < job["done"] < 400
    page = client.get(told["result_url"]).json()
    late = [error["index"] for error in page["errors"]]
    assert {error["code"] for error in page["errors"]} == {"deadline_exceeded"}
    assert len(late) == 400 - job["done"]
    for index, vector in enumerate(page["embeddings"]):
        assert (vector is None) == (index in late)
        assert vector is None or vector_bytes(vector) == null_vector(f"t{index}")
    whole = np.load(io.BytesIO(client.get(told["result_url"], **NPY).content))
    assert sorted(np.flatnonzero(np.isnan(whole).any(axis=1))) == late


def says_when_it_has_written(server: Server) -> bool:
    """Whether a Redis has WAITAOF."""
    with redis.Redis.from_url(server.url, protocol=2) as raw:
        return parse_version(str(raw.info("server")["redis_version"])) >= (7, 2)


ALWAYS, EVERYSEC = ("--appendonly", "yes", "--appendfsync", "always"), ("--appendonly", "yes")


@pytest.mark.parametrize(
    ("options", "level"), [((), "aof"), (ALWAYS, "aof"), (EVERYSEC, "aof"), ((), "replicas")], ids=str
)
async def test_durability(
    cluster: GatewayCluster, tmp_path_factory: pytest.TempPathFactory, options: tuple[str, ...], level: str
) -> None:
    """A job is only taken once it is as durable as it has to be: without a file or a replica, never."""
    with Server(options=options) as server:
        # Before WAITAOF a gateway asks for Redis' settings, which its user may not.
        taken = options in (ALWAYS, EVERYSEC) and says_when_it_has_written(server)
        taken = taken or (options == ALWAYS and not users_are_on())
        async with Processes(tmp_path_factory.mktemp("durable")) as processes:
            there = GatewayCluster(processes, server.url, cluster.queue)
            gateway = await there.start_gateway(job_durability=level, job_durable_s=3)
            answer = await asyncio.to_thread(Client(gateway).post, {"text": "a"})
            if taken:
                told = Client(gateway).taken(answer)
                assert Client(gateway).get(told["status_url"]).json()["status"] == "queued"
            else:
                assert (answer.status_code, error_of(answer)["code"]) == (503, "not_durable")
            with redis.Redis.from_url(server.url, protocol=2) as raw:
                assert raw.xlen(there.keys.lanes[1]) == int(taken)
                if users_are_on():
                    raw.acl_log_reset()


def is_followed(raw: redis.Redis) -> bool:
    """Whether a replica has come as far as it takes in what is written from now on."""
    replicas = raw.info("replication")
    return bool(replicas["connected_slaves"] == 1 and replicas["slave0"]["state"] == "online")


async def test_a_job_waits_for_a_replica(cluster: GatewayCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All jobs that come at a time ask once; and over a new connection too, what the replica has not is not there."""
    with Server() as server, redis.Redis.from_url(server.url, protocol=2) as raw:
        follow = ["--replicaof", "127.0.0.1", str(server.port)]
        if users_are_on():
            follow += ["--masteruser", REPLICA, "--masterauth", password_of(REPLICA)]
        with Server(options=follow) as replica:
            async with Processes(tmp_path_factory.mktemp("replica")) as processes:
                await wait_until(lambda: is_followed(raw), "the replica has what there is", timeout_s=20)
                there = GatewayCluster(processes, server.url, cluster.queue)
                gateway = await there.start_gateway(job_durability="replicas", job_durable_s=2)
                client = Client(gateway)
                os.kill(replica.pid, signal.SIGSTOP)
                try:
                    asked = [asyncio.create_task(asyncio.to_thread(client.post, {"text": f"{i}"})) for i in range(5)]
                    await wait_until(lambda: raw.zcard(there.keys.all_jobs) == len(asked), "all are made")
                    assert [each.result().text for each in asked if each.done()] == []
                finally:
                    os.kill(replica.pid, signal.SIGCONT)
                assert [answer.status_code for answer in await asyncio.gather(*asked)] == [202] * len(asked)
                assert raw.info("commandstats")["cmdstat_wait"]["calls"] <= 2
                os.kill(replica.pid, signal.SIGSTOP)
                try:
                    for _ in range(2):  # the second finds the job made
                        raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                        late = await asyncio.to_thread(client.post, {"text": "late"}, idempotency_key="late")
                        assert (late.status_code, error_of(late)["code"]) == (503, "not_durable")
                finally:
                    os.kill(replica.pid, signal.SIGCONT)
                told = client.taken(await asyncio.to_thread(client.post, {"text": "late"}, idempotency_key="late"))
                assert client.get(told["status_url"]).json()["n"] == 1


async def test_a_job_counts_for_its_tenant(cluster: GatewayCluster) -> None:
    """All its texts at once, whoever of the gateways takes it; and once, however often it is sent."""
    gateways = await asyncio.gather(
        *(cluster.start_gateway(tenant_tokens_per_s=1, tenant_burst_tokens=100) for _ in range(2))
    )
    await cluster.start_worker()
    await wait_until(lambda: not any(each.missing() for each in gateways), "the gateways see it")
    ann, bob = (Client(gateways[0], x_tenant=name) for name in ("ann", "bob"))
    also_ann = Client(gateways[1], x_tenant="ann")
    few = {"texts": ["a few words"] * 10}
    told = ann.taken(ann.post(few, idempotency_key="k"))
    assert ann.ended(told)["done"] == 10
    assert ann.taken(also_ann.post(few, idempotency_key="k"))["id"] == told["id"]
    many = {"texts": ["a few words"] * 1_000}  # more than the bucket holds: it goes when that is full
    refused = also_ann.post(many)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) > 10
    assert bob.ended(bob.taken(bob.post(many)))["done"] == 1_000
    after = plain_http.post(f"{gateways[0].url}/embed", json={"text": "a"}, headers={"x-tenant": "bob"}, timeout=30)
    assert (after.status_code, error_of(after)["code"]) == (429, "rate_limited")
    assert [each.errors("rate_limited", cluster.queue) for each in gateways] == [1, 1]


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_a_job_survives_a_redis_that_is_killed(
    cluster: GatewayCluster, tmp_path_factory: pytest.TempPathFactory, fsync: str
) -> None:
    """With an append-only file: what had been answered stays, the rest runs, and each input counts once."""
    texts = [f"text {i}" for i in range(2_000)]
    with Server(options=("--appendonly", "yes", "--appendfsync", fsync)) as server:
        async with Processes(tmp_path_factory.mktemp("killed")) as processes:
            there = GatewayCluster(processes, server.url, cluster.queue)
            gateway, _ = await asyncio.gather(
                there.start_gateway(),
                there.start_worker("simulated:base_ms=20,item_ms=0", reclaim_idle_ms=500, renew_ms=100),
            )
            client = Client(gateway)
            told = client.taken(client.post({"texts": texts}))
            for done in (200, 900):
                await wait_until(lambda done=done: client.get(told["status_url"]).json()["done"] > done, "it runs")  # type: ignore[misc]
                os.kill(server.pid, signal.SIGKILL)
                await asyncio.sleep(0.2)
                server.start()
                await wait_until(lambda: client.get(told["status_url"]).status_code == 200, "Redis is back")
            job = client.ended(told)
            assert (job["status"], job["done"], job["failed"]) == ("done", 2_000, 0)
            assert client.vectors(told) == list(map(null_vector, texts))


async def test_redis_full_or_down(cluster: GatewayCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """503 and no job."""
    with Server() as server:
        async with Processes(tmp_path_factory.mktemp("full")) as processes:
            there = GatewayCluster(processes, server.url, cluster.queue)
            gateway = await there.start_gateway(redis_timeout_s=0.5)
            client = Client(gateway)
            with redis.Redis.from_url(server.url, protocol=2) as raw:
                raw.config_set("maxmemory", raw.info("memory")["used_memory"] + 4_000_000)
                full = client.post_lines([f"text {i} " + "x" * 1_000 for i in range(8_000)])
                assert full.status_code == 503, full.text
                more = client.post_lines(["x" * 10] * 40_000)
                assert (more.status_code, error_of(more)["code"]) == (503, "jobs_full")
                assert gateway.errors("jobs_full", there.queue) >= 1
                assert raw.zcard(there.keys.jobs) == 0
            server.stop()
            away = client.post({"text": "a"})
            assert (away.status_code, error_of(away)["code"]) == (503, "redis_unreachable")
