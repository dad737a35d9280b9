"""Tenants whose jobs take what they can of Redis, beside another tenant (F21)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

import psutil
import pytest

from shared.keys import Keys
from shared.tenants import NO_QUOTA, Quota
from tests import plain_http
from tests.chaos.attack import (
    MAX_P99_MS,
    measure_growth,
    memory_of,
    memory_of_redis,
    new_tenant,
    p99_of,
    probe_livez,
)
from tests.chaos.scenario import Figures, Scenario, all_correct
from tests.integration.gateway.gateway_cluster import GatewayProcess
from tests.integration.gateway.http_ways import SETTINGS, Way
from tests.integration.gateway.job_client import JobClient
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.exclusive,
    pytest.mark.parametrize("own_redis", [["--maxmemory", "256mb"]], indirect=True),
]

MAX_GROWTH_MB = 30.0
"""Of the gateway: each upload holds up to 5 MiB beside what arrives."""

MAX_KEPT_MB = 2
"""Of Redis: what may be left of the attack's jobs a moment after they have ended."""

JOB_INTERVAL_S = 0.1
"""Time between two jobs of the other tenant."""

ONE_TEXT = {"text": "a text"}


@dataclass
class Attackers:
    """The greedy tenant: its API key, the gateway that it attacks, and the Redis behind that."""

    scenario: Scenario
    gateway: GatewayProcess
    api_key: str

    @property
    def client(self) -> JobClient:
        """A client with the key."""
        return JobClient(self.gateway, x_api_key=self.api_key)

    async def send_lines(self, *bodies: bytes) -> list[tuple[int, str]]:
        """Sends jobs at once; returns the status of each, and the path of the job or the error."""

        def send(body: bytes) -> tuple[int, str]:
            answer = self.client.post_lines(iter([body]))
            content = answer.json()
            return answer.status_code, content["status_url"] if answer.status_code == 202 else content["error"]["code"]

        return await asyncio.gather(*(asyncio.to_thread(send, each) for each in bodies))

    async def delete(self, path: str) -> None:
        """Waits until a job has ended, and deletes it."""
        job = await asyncio.to_thread(self.client.wait_until_ended, {"status_url": path})
        assert job["status"] == "done"
        assert (await asyncio.to_thread(self.client.delete, path)).status_code == 200


Attack = Callable[[Attackers], Awaitable[Figures]]
"""An attack; it returns its figures."""


@asynccontextmanager
async def submitted_jobs(client: JobClient, job: object) -> AsyncIterator[Counter[int]]:
    """Submits a small job again and again during the block; yields the statuses, which are complete after it."""
    statuses, stop = Counter[int](), asyncio.Event()

    async def submit() -> None:
        while not stop.is_set():
            answer = await asyncio.to_thread(client.post, job)
            statuses[answer.status_code] += 1
            await asyncio.sleep(JOB_INTERVAL_S)

    submitting = asyncio.create_task(submit())
    try:
        yield statuses
    finally:
        stop.set()
        await submitting


async def judge_attack(
    scenario: Scenario,
    fault: str,
    attack: Attack,
    max_redis_growth_mb: float,
    quota: Quota = NO_QUOTA,
    others_job: object = ONE_TEXT,
    **settings: object,
) -> Figures:
    """Attacks a gateway beside another tenant, which sends calls and jobs, and returns the figures.

    Raises AssertionError: the other tenant lost a call or a job, or memory or latency exceed their bounds.
    """
    greedy, other = [await new_tenant(scenario.cluster.redis_url, each) for each in (quota, NO_QUOTA)]
    gateway = await scenario.cluster.start_gateway(**SETTINGS, **settings)
    scenario.gateways.append(gateway)
    await scenario.wait_until_worker_seen()
    memory = [memory_of(psutil.Process(gateway.program.pid)), memory_of_redis(scenario.raw)]
    async with (
        scenario.load(clients=4, way=Way(gateway.port, api_key=other)) as calls,
        probe_livez(gateway) as latencies_s,
    ):
        await asyncio.sleep(1)  # until the memory of the load itself grows no more
        others = JobClient(gateway, x_api_key=other)
        async with measure_growth(*memory) as growths_mb, submitted_jobs(others, others_job) as jobs:
            figures = await attack(Attackers(scenario, gateway, greedy))
    (growth_mb, redis_growth_mb), p99_ms = growths_mb, p99_of(latencies_s)
    found = {"livez_p99_ms": round(p99_ms), "growth_mb": round(growth_mb), "redis_growth_mb": round(redis_growth_mb)}
    verdict = scenario.judge(fault, calls, **figures, others_jobs=jobs.total(), **found)
    assert all_correct(verdict)
    assert set(jobs) == {202}
    assert p99_ms <= MAX_P99_MS
    assert growth_mb <= MAX_GROWTH_MB
    assert redis_growth_mb <= max_redis_growth_mb
    assert int(str(figures.get("redis_keeps_mb", 0))) <= MAX_KEPT_MB
    assert not scenario.crash_logs()
    return figures


async def kept_mb(scenario: Scenario, before_mb: float) -> int:
    """Returns how much more memory (MB) than before Redis uses, as soon as that is hardly more, or after 10 s.

    The buffers of its clients take a second to shrink.
    """
    read, kept = memory_of_redis(scenario.raw), list[float]()

    async def freed() -> bool:
        kept.append(await read() - before_mb)
        return kept[-1] <= MAX_KEPT_MB

    with suppress(AssertionError):  # the test judges the figure
        await wait_until(freed, "the memory of Redis is free again", timeout_s=10)
    return round(kept[-1])


EMPTY = b'""\n' * 1_000_000
BESIDE_A_TEXT = b'"a text"\n' + EMPTY[3:]
MIXED = b'""\n"a text"\n'
MAX_EMPTY_GROWTH_MB = 50.0
"""Of Redis. A million errors took 166 MB; two such bodies whose errors are shared, and 10,000 vectors, take 30."""


async def test_inputs_that_cannot_run(own_scenario: Scenario) -> None:
    """F21: jobs of a million empty inputs, alone, beside a text and between texts, hardly fill Redis.

    Those of which nothing can run are refused, and one whose results would take too much, too; DELETE frees the others.
    """

    async def attack(attackers: Attackers) -> Figures:
        before_mb = await memory_of_redis(attackers.scenario.raw)()
        refused = await attackers.send_lines(EMPTY, EMPTY, MIXED * 500_000)
        accepted = await attackers.send_lines(BESIDE_A_TEXT, BESIDE_A_TEXT, MIXED * 10_000)
        await asyncio.gather(*(attackers.delete(path) for status, path in accepted if status == 202))
        outcomes = Counter(f"{status} {code}" for status, code in refused) + Counter(str(each) for each, _ in accepted)
        return {"outcomes": outcomes, "redis_keeps_mb": await kept_mb(attackers.scenario, before_mb)}

    await own_scenario.start_worker("null", max_batch_size=256, claim_window=1_024)
    figures = await judge_attack(own_scenario, "F21 inputs that cannot run", attack, MAX_EMPTY_GROWTH_MB)
    others = {"400 nothing_to_run": 2, "202": 3}
    # While another tenant's results are there, this one's share is full before the job is known to be too large.
    assert figures["outcomes"] in ({**others, "413 too_large": 1}, {**others, "429 too_many_results": 1})


LINE = b'"%b"\n' % (b"x" * 10_000)
"""A line of 3,300 tokens."""

UPLOADS, ATTACK_S = 3, 2.0
"""The uploads are repeated for this time, in which the other tenant sends some jobs."""


class Upload(NamedTuple):
    """Jobs in lines, `UPLOADS` at once: the number of lines of each, whether its body ends, and the tenant's quota.

    `expected` are the statuses of the answers, and `max_redis_growth_mb` is by how much Redis may grow.
    """

    num_lines: int
    ends: bool
    quota: Quota
    expected: set[str]
    max_redis_growth_mb: float


MAX_UPLOAD_BYTES = 128 * 2**20
ATTACKS = {
    "jobs of 5,000,000 tokens, 100 a day": Upload(1_500, True, Quota(daily_tokens=100), {"413"}, 5),
    "unfinished uploads of 100 MB, a million tokens a day": Upload(
        10_000, False, Quota(daily_tokens=1_000_000), {"413", "429"}, 10
    ),
    "unfinished uploads of 100 MB, without a quota": Upload(10_000, False, NO_QUOTA, {"408", "429"}, 125),
}
"""The uploads without a quota have four fifths of MAX_UPLOAD_BYTES, 107 MB. When no more arrives, they end with 408."""


@pytest.mark.parametrize("name", ATTACKS)
async def test_large_uploads(own_scenario: Scenario, name: str) -> None:
    """F21: uploads over a quota or over their part of all uploads are refused while they arrive, and leave nothing."""
    upload = ATTACKS[name]
    length = upload.num_lines * len(LINE) + (0 if upload.ends else 1)

    async def parts(api_key: str) -> AsyncIterator[bytes]:
        head = f"POST /jobs HTTP/1.1\r\nHost: x\r\nX-Api-Key: {api_key}\r\nContent-Type: application/x-ndjson\r\n"
        yield f"{head}Content-Length: {length}\r\n\r\n".encode()
        for _ in range(0, upload.num_lines, 10):
            yield LINE * 10

    async def attack(attackers: Attackers) -> Figures:
        before_mb = await memory_of_redis(attackers.scenario.raw)()
        way = Way(attackers.gateway.port)
        statuses, until = Counter[str](), time.monotonic() + ATTACK_S
        while time.monotonic() < until:
            answers = await asyncio.gather(*(way.exchange(parts(attackers.api_key)) for _ in range(UPLOADS)))
            statuses.update(answer[9:12].decode() for answer in answers)
        return {"statuses": statuses, "redis_keeps_mb": await kept_mb(attackers.scenario, before_mb)}

    await own_scenario.start_worker("null")
    settings = {"max_upload_bytes": MAX_UPLOAD_BYTES, "body_timeout_s": 3}
    figures = await judge_attack(
        own_scenario, f"F21 {name}", attack, upload.max_redis_growth_mb, upload.quota, **settings
    )
    statuses = figures["statuses"]
    assert isinstance(statuses, Counter)
    assert set(statuses) <= upload.expected


CLIENTS, MIN_REFUSALS = 16, 200
MAX_TENANT_JOBS = 1_600
"""Four fifths of the default of `max_open_jobs`."""

SLOW_JOB = {"model": "slow", "texts": ["a text"]}
"""Its model takes 3 s for 8 texts, so these jobs stay open; the calls of the other tenant go to another one."""


@pytest.mark.leaves_anything
async def test_all_open_jobs(own_scenario: Scenario) -> None:
    """F21: a tenant opens jobs until it is refused, and goes on; the jobs of another tenant are accepted."""

    async def attack(attackers: Attackers) -> Figures:
        statuses, tenant = Counter[str](), attackers.api_key.partition(".")[0]

        async def open_jobs() -> None:
            async with plain_http.client(headers={"x-api-key": attackers.api_key}, timeout=30) as client:
                while statuses.total() - statuses["202"] < MIN_REFUSALS:
                    answer = await client.post(f"{attackers.gateway.url}/jobs", json=SLOW_JOB)
                    statuses[str(answer.status_code)] += 1

        await asyncio.gather(*(open_jobs() for _ in range(CLIENTS)))
        num_open = await attackers.scenario.raw.hget(Keys("slow").owed, f"jobs {tenant}")
        return {"statuses": statuses, "open": int(num_open or 0)}

    await own_scenario.start_worker("null")
    await own_scenario.start_worker("simulated:base_ms=3000,item_ms=1", queue="slow")
    figures = await judge_attack(own_scenario, "F21 all open jobs", attack, 10, others_job=SLOW_JOB, all_queues=True)
    statuses, num_open = figures["statuses"], figures["open"]
    assert isinstance(statuses, Counter)
    assert isinstance(num_open, int)
    assert set(statuses) == {"202", "429"}
    assert MAX_TENANT_JOBS / 2 < num_open <= MAX_TENANT_JOBS
