"""Tenants that take what they can: the bounds of each, and what is left for the others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import redis

from shared.tenants import Quota
from tests.integration.gateway.conftest import NewKey
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of, has_vectors
from tests.integration.gateway.job_client import JobClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.leaves_anything, pytest.mark.timeout(90)]

EMPTY = b'""\n'
"""A line of a job, which cannot run."""


async def start(cluster: GatewayCluster, auth: str = "on", **settings: object) -> GatewayProcess:
    """Starts a gateway, which requires keys by default, and a worker."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(auth=auth, **settings), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway


async def test_the_first_request_of_a_day_has_no_more_than_the_day(
    isolated_cluster: GatewayCluster, new_key: NewKey
) -> None:
    """A job or request above the daily quota is refused as the first of the day, and takes nothing from it."""
    key = await new_key(Quota(daily_tokens=100))
    gateway = await start(isolated_cluster)
    client = JobClient(gateway, x_api_key=key)
    large = ["a text of some words"] * 1_000
    for answer in (
        client.post({"texts": large}),
        client.post_lines(large),
        gateway.embed({"texts": large[:50]}, x_api_key=key),
    ):
        assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")
        assert "100 a day" in error_of(answer)["message"]
    assert client.wait_until_ended(client.job_of(client.post({"texts": large[:10]})))["done"] == 10  # 70 tokens
    for answer in (client.post({"texts": large[:5]}), gateway.embed({"texts": large[:5]}, x_api_key=key)):
        assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limited")
        assert "too few of its 100 tokens left for this day, which began at 00:00 UTC" in error_of(answer)["message"]
    assert gateway.embed({"texts": large[:4]}, x_api_key=key).status_code == 200


def used_memory(cluster: GatewayCluster) -> int:
    """Returns the bytes that Redis uses for keys, without the buffers of clients."""
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
        return int(raw.info("memory")["used_memory_dataset"])


def job_keys(cluster: GatewayCluster) -> list[str]:
    """Returns the keys of all jobs."""
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
        return [name.decode() for name in raw.scan_iter(match=cluster.keys.job("*"), count=1_000)]


async def test_inputs_that_cannot_run_do_not_fill_redis(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """A job of which nothing can run is refused and leaves no key; beside a text, 32 such inputs share an error."""
    gateway = await start(isolated_cluster)
    client = JobClient(gateway, x_api_key=await new_key())
    empty, before = EMPTY * 200_000, used_memory(isolated_cluster)
    refused = client.post_lines(iter([empty]))
    assert (refused.status_code, error_of(refused)["code"]) == (400, "nothing_to_run")
    assert job_keys(isolated_cluster) == []
    new_job = client.job_of(client.post_lines(iter([b'"a text"\n' + empty])))
    job = client.wait_until_ended(new_job)
    assert (job["status"], job["done"], job["failed"]) == ("done", 1, 200_000)
    assert used_memory(isolated_cluster) - before < 10 * 200_000
    page = client.get(new_job["result_url"] + "?offset=100000&limit=100").json()
    assert [each["index"] for each in page["errors"]] == list(range(100_000, 100_100))


async def test_a_deleted_job_frees_its_memory_at_once(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """DELETE removes the results and errors of a job that has ended; only its status is left."""
    gateway = await start(isolated_cluster)
    client = JobClient(gateway, x_api_key=await new_key())
    new_job = client.job_of(client.post({"texts": ["a", "", "b"]}))
    assert client.wait_until_ended(new_job)["status"] == "done"
    assert len(job_keys(isolated_cluster)) == 3
    assert client.delete(new_job["status_url"]).json()["status"] == "deleted"
    assert len(job_keys(isolated_cluster)) == 1
    gone = client.get(new_job["result_url"])
    assert (gone.status_code, error_of(gone)["code"]) == (410, "job_gone")


async def test_inputs_that_cannot_run_are_charged(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """Each input counts for the quota when it is received, at least as one token."""
    gateway = await start(isolated_cluster)
    client = JobClient(gateway, x_api_key=await new_key(Quota(daily_tokens=1_000)))
    body = ["a text", *[""] * 900]
    client.wait_until_ended(client.job_of(client.post_lines(body)))
    answer = client.post_lines(body)
    assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limited")


async def test_a_job_of_which_nothing_can_run_is_charged(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """Beyond the quota it is refused while it arrives. Otherwise a tenth is charged, also of one portion."""
    gateway = await start(isolated_cluster)
    small, large = [JobClient(gateway, x_api_key=await new_key(Quota(daily_tokens=each))) for each in (1_000, 10**7)]
    answer = small.post_lines(iter([EMPTY * 100_000]))
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")
    assert "1000 a day" in error_of(answer)["message"]
    for number, used in ((100_000, 10_000), (900, 10_090), (1, 10_091)):
        answer = large.post_lines(iter([EMPTY * number]))
        assert (answer.status_code, error_of(answer)["code"]) == (400, "nothing_to_run")
        assert used_tokens(isolated_cluster) == used
    assert job_keys(isolated_cluster) == []


async def test_one_tenant_does_not_take_all_jobs(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """A tenant that opens jobs gets a 429 at its share, and the others theirs; the bound of all is a 503."""
    gateway = await isolated_cluster.start_gateway(auth="on", max_open_jobs=50)
    statuses = []
    for _ in range(5):
        client = JobClient(gateway, x_api_key=await new_key())
        while (answer := client.post({"text": "a"})).status_code == 202:
            statuses.append(202)
        statuses.append(answer.status_code)
        code = "too_many_jobs" if answer.status_code == 429 else "jobs_full"
        assert error_of(answer)["code"] == code
        assert int(answer.headers["retry-after"]) >= 1
    assert statuses == [*[202] * 40, 429, *[202] * 8, 429, 202, 429, 202, 503, 503]


def set_memory(cluster: GatewayCluster, num_bytes: int) -> None:
    """Sets the maxmemory of Redis."""
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
        raw.config_set("maxmemory", num_bytes)


def fill(client: JobClient, body: object) -> tuple[list[dict[str, Any]], httpx.Response]:
    """Creates jobs and waits for their ends, until one is refused; returns the jobs, and the refusal."""
    new_jobs = []
    while (answer := client.post(body)).status_code == 202:
        new_jobs.append(client.job_of(answer))
        assert client.wait_until_ended(new_jobs[-1])["status"] == "done"
        assert len(new_jobs) < 100, "results are not bounded"
    return new_jobs, answer


async def test_results_of_a_tenant_leave_room(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """A tenant whose kept results fill its share gets a 429, until it deletes a job; others are served."""
    set_memory(isolated_cluster, 100_000_000)
    gateway = await start(isolated_cluster, max_result_ratio=0.02)
    await wait_until(lambda: gateway.metric("redbatch_redis_memory_ratio") > 0, "the gateway knows the maxmemory")
    key = await new_key()
    greedy, other = JobClient(gateway, x_api_key=await new_key()), JobClient(gateway, x_api_key=key)
    body = {"texts": ["a"] * 100}  # vectors of 384 numbers, so 10 jobs have about 1.6 MB
    new_jobs, refused = fill(greedy, body)
    assert len(new_jobs) == 10
    assert (refused.status_code, error_of(refused)["code"]) == (429, "too_many_results")
    assert "DELETE /jobs/{id}" in error_of(refused)["message"]
    assert int(refused.headers["retry-after"]) >= 1
    assert greedy.get(new_jobs[0]["result_url"]).status_code == 200, "nothing was deleted"
    greedy.delete(new_jobs[0]["status_url"])
    assert len(fill(greedy, body)[0]) == 1, "there is room for one job again"
    assert other.wait_until_ended(other.job_of(other.post(body)))["status"] == "done"
    assert gateway.embed({"text": "a"}, x_api_key=key).status_code == 200
    assert gateway.embed({"text": "a"}, x_api_key=await new_key()).status_code == 200
    await wait_until(lambda: gateway.metric("redbatch_job_result_bytes") > 1_400_000, "the metric shows it")
    large = greedy.post({"texts": ["a"] * 1_100})
    assert (large.status_code, error_of(large)["code"]) == (413, "too_large"), "it would never be accepted"
    assert "max_result_ratio" in error_of(large)["message"]


async def test_results_that_have_expired_leave_room(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """After job_ttl_s, a tenant that had its share may have it again, also while no worker is there."""
    set_memory(isolated_cluster, 100_000_000)
    gateway, worker = await asyncio.gather(
        isolated_cluster.start_gateway(auth="on", max_result_ratio=0.01, job_ttl_s=3), isolated_cluster.start_worker()
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    client = JobClient(gateway, x_api_key=await new_key())
    body = {"texts": ["a"] * 100}
    _, refused = fill(client, body)
    assert error_of(refused)["code"] == "too_many_results"
    worker.kill()
    await wait_until(lambda: client.post(body).status_code == 202, "results have expired", timeout_s=20)


async def test_outputs_of_functions_count_as_they_are_stored(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """How large they will be is not known before; afterwards they are in the tenant's part like vectors."""
    set_memory(isolated_cluster, 100_000_000)
    gateway, _ = await asyncio.gather(
        isolated_cluster.start_gateway(auth="on", max_result_ratio=0.02),
        isolated_cluster.start_worker("tests.integration.functions.function_models:Echo"),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    client = JobClient(gateway, x_api_key=await new_key())
    new_jobs, refused = fill(client, {"inputs": ["x" * 1_000] * 200})
    assert len(new_jobs) in (7, 8)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "too_many_results")


async def test_a_large_upload_is_refused_while_it_grows(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """At the bound on bytes of uploads, and at the quota: Redis never holds more, and nothing of it afterwards."""
    gateway = await isolated_cluster.start_gateway(auth="on", max_upload_bytes=10_000_000)
    before, peaks = used_memory(isolated_cluster), []

    def pieces() -> Iterator[bytes]:
        for i in range(30):
            peaks.append(used_memory(isolated_cluster) - before)
            yield b"".join(b'"%d %d %s"\n' % (i, j, b"x" * 1_000) for j in range(1_000))

    rich, poor = await new_key(), await new_key(Quota(daily_tokens=100_000))
    large = JobClient(gateway, x_api_key=rich).post_lines(pieces())
    assert (large.status_code, error_of(large)["code"]) == (413, "too_large"), "it would never be accepted"
    assert "8000000 bytes" in error_of(large)["message"]
    assert "max_upload_bytes" in error_of(large)["message"]
    assert 5_000_000 < max(peaks) < 12_000_000
    peaks.clear()
    expensive = JobClient(gateway, x_api_key=poor).post_lines(pieces())
    assert (expensive.status_code, error_of(expensive)["code"]) == (413, "too_large")
    # Redis receives the refused portion (1 MB, one allocation that may be twice as large), but stores nothing of it.
    assert max(peaks) < 3_000_000, "a portion has more tokens than the quota, so nothing was stored"
    assert job_keys(isolated_cluster) == []
    client = JobClient(gateway, x_api_key=poor)
    assert client.post_lines([f"{i} " + "x" * 1_000 for i in range(300)]).status_code == 202, "it was charged nothing"


def used_tokens(cluster: GatewayCluster) -> float:
    """Returns the tokens that the only tenant has used today."""
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as raw:
        accounts: Any = raw.hvals(cluster.keys.tenants)
    return sum(float(each.split()[4]) for each in accounts)


async def test_a_broken_upload_is_not_free(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """A tenth of the tokens that it had stored stays charged."""
    gateway = await isolated_cluster.start_gateway(auth="on")
    client = JobClient(gateway, x_api_key=await new_key(Quota(daily_tokens=10**9)))
    lines = [f"{i} " + "x" * 1_000 for i in range(2_000)]
    assert client.post_lines([*lines, 12]).status_code == 400
    assert job_keys(isolated_cluster) == []
    charged = used_tokens(isolated_cluster)
    assert client.post_lines(lines).status_code == 202
    whole = used_tokens(isolated_cluster) - charged
    assert whole / 20 < charged <= whole / 10 + 1


class UnfinishedUpload:
    """A job in lines whose body does not end."""

    def __init__(self, gateway: GatewayProcess, key: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", gateway.port))
        self._socket.settimeout(0.02)
        self._status = 0
        head = f"POST /jobs HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\ncontent-type: application/x-ndjson\r\n"
        self._socket.sendall(head.encode() + b"transfer-encoding: chunked\r\n\r\n")
        self.send(b'"the first line"\n')

    def send(self, data: bytes) -> None:
        """Sends a chunk of the body."""
        self._socket.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def status(self) -> int:
        """Returns the status of the answer; 0 if there is none yet."""
        if not self._status:
            with contextlib.suppress(TimeoutError):
                self._status = int(self._socket.recv(4_096).split()[1])
        return self._status

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


async def test_unfinished_uploads_of_a_tenant_leave_room(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """A tenant may send four fifths of the bodies that a gateway receives at a time; others may send theirs."""
    gateway = await isolated_cluster.start_gateway(auth="on")
    greedy, other = await new_key(), JobClient(gateway, x_api_key=await new_key())
    uploads = [UnfinishedUpload(gateway, greedy) for _ in range(64)]
    try:
        await wait_until(lambda: [each.status() for each in uploads].count(429) == 13, "a fifth is refused")
        assert other.post_lines(["a"]).status_code == 202
        assert [each.status() for each in uploads].count(0) == 51
    finally:
        for each in uploads:
            each.close()
    client = JobClient(gateway, x_api_key=greedy)
    await wait_until(lambda: client.post_lines(["a"]).status_code == 202, "closed uploads leave their room")


async def test_a_slow_upload_ends(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """A body that arrives below the minimum rate gets a 408, and one that arrives in pieces above it does not."""
    gateway = await isolated_cluster.start_gateway(auth="on", body_timeout_s=3, min_upload_bytes_per_s=1_000)
    key = await new_key()
    slow, fast = UnfinishedUpload(gateway, key), UnfinishedUpload(gateway, key)
    started = time.monotonic()
    while not slow.status():
        assert time.monotonic() - started < 30
        await asyncio.sleep(0.1)  # the rate of the bodies
        slow.send(b'"a"\n')
        fast.send(b'"%s"\n' % (b"x" * 20_000))
    assert (slow.status(), fast.status()) == (408, 0)
    fast.close()
    slow.close()


async def test_an_upload_has_a_maximum_time(isolated_cluster: GatewayCluster, new_key: NewKey) -> None:
    """A body that arrives fast enough, but for longer than an upload may take, gets a 408."""
    gateway = await isolated_cluster.start_gateway(auth="on", max_upload_s=1)
    with contextlib.closing(UnfinishedUpload(gateway, await new_key())) as upload:
        started = time.monotonic()
        while not upload.status():
            assert time.monotonic() - started < 30
            await asyncio.sleep(0.1)  # the rate of the body
            upload.send(b'"%s"\n' % (b"x" * 5_000))
        assert upload.status() == 408
        assert time.monotonic() - started > 1


async def test_requests_in_flight_share_the_memory_of_a_gateway(cluster: GatewayCluster, fake_heartbeat: None) -> None:
    """Above max_in_flight_bytes a request is refused at once; when others have ended, it is accepted again."""
    gateway = await cluster.start_gateway(max_in_flight_bytes=2**20, max_input_chars=400_000)
    body = {"text": "a " * 200_000, "timeout_ms": 6_000}
    first = asyncio.create_task(asyncio.to_thread(gateway.embed, body))
    await wait_until(lambda: gateway.metric("redbatch_requests_in_flight") == 1, "the first waits")
    refused = gateway.embed(body)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "overloaded")
    assert "max_in_flight_bytes" in error_of(refused)["message"]
    assert 1 <= float(refused.headers["retry-after"]) <= 2
    assert gateway.embed({"text": "a", "timeout_ms": 100}).status_code == 504, "there is room for a small one"
    assert (await first).status_code == 504
    assert gateway.embed(body | {"timeout_ms": 100}).status_code == 504


async def test_requests_of_an_address_leave_memory_to_others(cluster: GatewayCluster, fake_heartbeat: None) -> None:
    """Without keys, an address has four fifths of max_in_flight_bytes, whatever tenants it names."""
    gateway = await cluster.start_gateway(max_in_flight_bytes=2**20)
    body = {"text": "a" * 30_000, "timeout_ms": 6_000}
    transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
    async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=30) as client:
        calls = [client.post(f"{gateway.url}/embed", json=body, headers={"x-tenant": f"name-{n}"}) for n in range(16)]
        greedy = asyncio.gather(*calls)
        await wait_until(lambda: gateway.metric("redbatch_requests_in_flight") == 13, "the address has its share")
        assert gateway.embed(body | {"timeout_ms": 100}, x_tenant="name-0").status_code == 504, "another has room"
        assert Counter(each.status_code for each in await greedy) == {504: 13, 429: 3}


async def status_of(sent: bytes, writer: asyncio.StreamWriter, reader: asyncio.StreamReader, wait_s: float) -> int:
    """Sends a request; returns the status of the answer, 0 if none has come within this time."""
    writer.write(sent)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            return int((await reader.readline()).split()[1])
    return 0


@pytest.mark.parametrize("auth", ["on", "off"])
async def test_bodies_of_a_client_leave_memory_to_others(
    isolated_cluster: GatewayCluster, new_key: NewKey, auth: str
) -> None:
    """A client whose unfinished bodies take its share of max_bodies_bytes gets a 429; another's large body is read.

    A client is a tenant with keys. Without keys it is an address, whatever tenants it names.
    """
    gateway = await start(isolated_cluster, auth, max_bodies_bytes=2**20)
    greedy, other = await new_key(), await new_key()
    writers, statuses = [], []
    try:
        for number in range(7):
            field = f"x-api-key: {greedy}" if auth == "on" else f"x-tenant: name-{number}"
            head = f"POST /embed HTTP/1.1\r\nhost: a\r\n{field}\r\ncontent-type: application/json\r\n"
            unfinished = head.encode() + b"content-length: 200000\r\n\r\n" + b" " * 150_000
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, local_addr=("127.0.0.2", 0))
            writers.append(writer)
            statuses.append(await status_of(unfinished, writer, reader, 1 if number < 5 else 20))
        assert statuses == [0] * 5 + [429] * 2, "838,860 bytes are four fifths"
        headers = {"x_api_key": other} if auth == "on" else {"x_tenant": "name-0"}
        assert has_vectors(gateway.embed({"texts": ["a" * 50_000] * 2}, **headers), ["a" * 50_000] * 2)
    finally:
        for each in writers:
            each.close()
