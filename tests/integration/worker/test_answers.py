"""What a worker answers, and what it leaves alone: real processes, and a model whose vectors tell their texts."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pytest

from gpuworker.backends.simulated import DIM
from shared.codec import encode_body
from shared.keys import BULK, GROUP
from shared.messages import EMBED, Body, NewEntry, Vectors
from shared.producer import Submission
from tests.integration.queue.actors import Worker, request
from tests.integration.worker.worker_cluster import WorkerCluster, get_admin, metric, submit_and_check
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]


async def xadd(cluster: WorkerCluster, **fields: object) -> None:
    """Adds an entry by hand, as somebody with redis-cli would."""
    await cluster.raw.execute_command(
        "XADD", cluster.lane, "*", *(str(part) for pair in fields.items() for part in pair)
    )


async def test_every_answer_is_of_its_own_texts_and_nothing_is_left(cluster: WorkerCluster) -> None:
    """Entries of 1 to 32 inputs, from many gateways' calls at once: after it stream, pending and replies are empty."""
    worker = await cluster.start_worker()
    rng = random.Random(11)
    entries = [[f"{i} {j} \U0001f600é" for j in range(rng.choice([1, 1, 2, 7, 32]))] for i in range(400)]
    await submit_and_check(cluster, [entries[at : at + 40] for at in range(0, 400, 40)])
    assert await cluster.is_empty()
    assert await metric(worker, "redbatch_inputs_total") == sum(map(len, entries))
    await wait_until(lambda: cluster.is_idle(worker), "the heartbeat says that nothing is held")


async def test_bulk_that_is_the_share_of_another_worker_is_left_to_it(cluster: WorkerCluster) -> None:
    """While it waits for interactive entries beside what it has left, a worker takes no more of it."""
    other = Worker(cluster.queue.connection("other"), cluster.keys, "other")
    await other.beat(ttl_ms=20_000)
    await cluster.start_worker("simulated:base_ms=2000,item_ms=0", heartbeat_ttl_s=60)  # in which it counts others, too
    refs = await cluster.gateway.add(*(request(lane=BULK) for _ in range(8)))
    most = 0
    for _ in range(50):
        await asyncio.sleep(0.02)
        most = max(most, (await cluster.raw.xpending(cluster.keys.lanes[BULK], GROUP))["pending"])
    assert 4 <= most <= 5  # on a slow machine the wait for the first may bring a second before the share is asked for
    await cluster.cancel(refs)


async def test_a_reply_tells_its_timing(cluster: WorkerCluster) -> None:
    """The time in the queue, the time in the model, and the size of its batch."""
    await cluster.start_worker("simulated:base_ms=50,item_ms=0")
    asked = await cluster.submit("one", "two")
    reply = await cluster.wait_for_reply(asked.request_id)
    asked.check(reply)
    assert isinstance(reply, Vectors)
    assert reply.timing.batch_size == 2
    assert 50 <= reply.timing.inference_ms < 1_000
    assert 0 <= reply.timing.queue_ms < 1_000
    assert reply.dim == DIM


async def test_a_reply_that_nobody_takes_is_gone_after_its_time(cluster: WorkerCluster) -> None:
    """The rest of the deadline and the reply's own lifetime."""
    await cluster.start_worker(reply_ttl_s=0.3)
    asked = await cluster.submit("one", timeout_ms=500)
    key = cluster.keys.reply(asked.request_id)

    async def lies_there() -> bool:
        return bool(await cluster.raw.exists(key))

    await wait_until(lies_there, "the reply is there")
    assert await cluster.raw.pttl(key) <= 800
    await wait_until(cluster.is_empty, "the reply is gone")


@pytest.mark.parametrize("foreign", ["operation", "version"])
async def test_what_it_does_not_understand_stays_for_others(cluster: WorkerCluster, foreign: str) -> None:
    """A newer gateway's entry is given back, untouched, again and again, until its deadline; others are served."""
    worker = await cluster.start_worker(reclaim_idle_ms=300)
    body = Body("rerank" if foreign == "operation" else EMBED, ("text",))
    request_id = f"foreign-{foreign}"
    now = int((await cluster.raw.time())[0]) * 1_000
    fields: dict[str, Any] = {"id": request_id, "n": 1, "pos": 0, "cost": 1, "deadline_ms": now + 5_000}
    flat = [part for pair in fields.items() for part in pair]
    version = 1 if foreign == "operation" else 2
    await cluster.raw.execute_command("XADD", cluster.lane, "*", *flat, "v", version, "body", encode_body(body))
    await cluster.raw.hincrby(cluster.keys.backlog, "inputs", 1)
    await cluster.raw.hincrby(cluster.keys.backlog, "tokens", 1)

    async def given_back_often() -> bool:
        return await metric(worker, "redbatch_handed_back_total") >= 3

    await wait_until(given_back_often, "it was given back three times")
    await cluster.check_replies([await cluster.submit("known")])
    assert [row["times_delivered"] for row in await cluster.pending_entries()] == [1]
    assert await cluster.wait_for_error_code(request_id) == "deadline_exceeded"
    assert await metric(worker, "redbatch_inputs_total") == 1
    await wait_until(cluster.released_is_gone, "nobody is named in the group any more who owes nothing")


async def test_what_is_no_entry_is_removed_and_disturbs_nobody(cluster: WorkerCluster) -> None:
    """Whatever is written into the stream by hand, the entries around it are answered."""
    worker = await cluster.start_worker()
    good = await cluster.submit_many([["a"], ["b"]])
    await xadd(cluster, hello="world")
    await xadd(cluster, id="x y", v=1, n=1, pos=0, cost=1, deadline_ms=1, body="")
    await xadd(cluster, id="x", v="one", n=1, pos=0, cost=1, deadline_ms=1, body="")
    await xadd(cluster, id="x", v=1, n=10**30, pos=0, cost=10**30, deadline_ms=10**15, body="")
    good += await cluster.submit_many([["c"], ["d"]])
    await cluster.check_replies(good)
    await wait_until(cluster.is_empty, "what could not be answered is removed")
    await cluster.check_replies(await cluster.submit_many([["e"]]))
    assert worker.running
    await cluster.raw.delete(cluster.keys.backlog)  # what is written by hand is in no counter


async def test_a_body_that_is_none_is_answered_as_a_fault(cluster: WorkerCluster) -> None:
    """An entry that names its request gets an answer even if its body cannot be read, or lies about its inputs."""
    await cluster.start_worker()
    good = await cluster.submit("good")
    for name, n, body in (("noise", 1, b"\xc1\xff"), ("fewer", 3, encode_body(Body(EMBED, ("one",))))):
        await cluster.gateway.add(Submission(name, (NewEntry(0, n, 1, body),), 10_000))
    assert await cluster.wait_for_error_code("noise") == "internal"
    assert await cluster.wait_for_error_code("fewer") == "internal"
    await cluster.check_replies([good])
    assert await cluster.is_empty()


async def test_what_has_expired_is_answered_and_never_run(cluster: WorkerCluster) -> None:
    """Its deadline passed while no worker was there."""
    late = await cluster.submit_many([["late"], ["late", "too"]], timeout_ms=1)
    good = await cluster.submit("good")
    worker = await cluster.start_worker()
    assert [await cluster.wait_for_error_code(each.request_id) for each in late] == ["deadline_exceeded"] * 2
    await cluster.check_replies([good])
    assert await metric(worker, "redbatch_inputs_total") == 1
    assert await metric(worker, "redbatch_failures_total") == 2


async def test_a_cancelled_entry_is_not_run(cluster: WorkerCluster) -> None:
    """It is gone from the stream while it waits its turn in the worker's hands: the engine never sees it."""
    worker = await cluster.start_worker("simulated:base_ms=1000,item_ms=0", renew_ms=50)
    first = await cluster.submit("first")
    await wait_until(cluster.has_entry_in_progress, "the first batch runs")
    refs = await cluster.gateway.add(*(cluster.submission(Body(EMBED, (f"no {i}",))) for i in range(3)))

    async def all_claimed() -> bool:
        return len(await cluster.pending_entries()) == 4

    await wait_until(all_claimed, "the worker holds them")
    assert await cluster.cancel(refs) == 3
    await cluster.check_replies([first])
    await cluster.check_replies([await cluster.submit("next")])
    assert await metric(worker, "redbatch_inputs_total") == 2
    assert await metric(worker, "redbatch_dropped_total") == 3


async def test_waits_for_a_fuller_batch_as_long_as_it_is_told(cluster: WorkerCluster) -> None:
    """Entries that arrive one by one within the wait share one batch."""
    await cluster.start_worker(max_batch_wait_ms=2_000)
    asked = [await cluster.submit(f"text {i}") for i in range(3)]
    for each in asked:
        reply = await cluster.wait_for_reply(each.request_id)
        each.check(reply)
        assert isinstance(reply, Vectors)
        assert reply.timing.batch_size == 3
        assert reply.timing.queue_ms >= 1_600


async def test_tells_its_health_and_its_measures(cluster: WorkerCluster) -> None:
    """On the admin port that its first log line names: ready once the engine is, and all of its metrics."""
    worker = await cluster.start_worker("simulated:base_ms=1")
    await cluster.check_replies(await cluster.submit_many([[f"text {i}"] for i in range(20)]))
    assert [(await get_admin(worker, path)).status_code for path in ("/livez", "/readyz")] == [200, 200]
    text = (await get_admin(worker, "/metrics")).text
    for name in ("queue_wait_seconds", "batch_size", "batch_tokens", "batch_padding_ratio", "batch_gap_seconds"):
        assert f"redbatch_{name}_count" in text
    assert await metric(worker, "redbatch_batch_inference_seconds_sum") > 0
    assert await metric(worker, "redbatch_commits_total") == 20
    assert await metric(worker, "redbatch_worker_up") == 1


async def test_is_not_ready_before_its_engine_is(cluster: WorkerCluster) -> None:
    """It says what is missing, and lives; to Prometheus it is not up, which is more than no sign of it."""
    worker = await cluster.start_worker("minilm", ready=False)
    await wait_until(lambda: bool(worker.log_records("worker starts")), "the admin port is open", timeout_s=20)
    told = (await get_admin(worker, "/metrics")).text
    assert re.findall(r"^redbatch_worker_up\{.*\} (.*)$", told, re.MULTILINE) == ["0.0"]
    answer = await get_admin(worker, "/readyz")
    assert answer.status_code == 503
    assert "engine" in answer.text
    assert (await get_admin(worker, "/livez")).status_code == 200


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "simulated:base=1"}, "write simulated:base_ms=5,item_ms=3"),
        ({"model": "/no/such/folder"}, "there is no such folder"),
        ({"max_batch_size": "0"}, "--max-batch-size (REDBATCH_MAX_BATCH_SIZE)"),
    ],
)
async def test_says_in_a_line_what_cannot_be_served(
    cluster: WorkerCluster, settings: dict[str, str], words: str
) -> None:
    """Exit code 2 and a line that names the cause, no traceback."""
    worker = await cluster.start_worker(**{"model": "null", "ready": False} | settings)  # type: ignore[arg-type]
    assert await worker.wait_until_ended() == 2
    assert words in worker.output
    assert "Traceback" not in worker.output


async def test_a_folder_without_a_model_is_said_once_and_ends_it(cluster: WorkerCluster, tmp_path: Path) -> None:
    """The engine finds it out; starting it again would not help."""
    (tmp_path / "empty").mkdir()
    worker = await cluster.start_worker(str(tmp_path / "empty"), ready=False)
    assert await worker.wait_until_ended(40) == 2
    assert "cannot be loaded" in worker.output
    assert await cluster.consumers() == set()
