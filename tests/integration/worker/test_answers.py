"""The replies of a worker process, whose model's vectors identify their texts, and the entries that it leaves."""

from __future__ import annotations

import asyncio
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest

from gpuworker.backends.simulated import DIM
from gpuworker.model_spec import OFFLINE
from shared import consumer, producer
from shared.codec import encode_body
from shared.heartbeats import MIXED_MODELS
from shared.keys import BULK, GROUP
from shared.messages import EMBED, Body, NewEntry, Vectors
from shared.producer import Submission
from tests.integration.queue.actors import Worker, request
from tests.integration.worker.worker_cluster import WorkerCluster, get_admin, metric, submit_and_check
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]


async def xadd(cluster: WorkerCluster, **fields: object) -> None:
    """Adds an entry to the stream directly, as a user of redis-cli would."""
    await cluster.raw.execute_command(
        "XADD", cluster.lane, "*", *(str(part) for pair in fields.items() for part in pair)
    )


async def test_every_reply_belongs_to_its_texts_and_no_key_remains(cluster: WorkerCluster) -> None:
    """Entries of 1 to 32 inputs from concurrent calls get their vectors; then no entry, claim or reply remains."""
    worker = await cluster.start_worker()
    rng = random.Random(11)
    entries = [[f"{i} {j} \U0001f600é" for j in range(rng.choice([1, 1, 2, 7, 32]))] for i in range(400)]
    await submit_and_check(cluster, [entries[at : at + 40] for at in range(0, 400, 40)])
    assert await cluster.is_empty()
    assert await metric(worker, "redbatch_inputs_total") == sum(map(len, entries))
    await wait_until(lambda: cluster.is_idle(worker), "the heartbeat reports no entries")


async def test_a_worker_leaves_bulk_entries_to_another_worker(cluster: WorkerCluster) -> None:
    """A worker with its share of bulk entries waits for interactive entries and claims no more bulk."""
    other = Worker(cluster.queue.connection("other"), cluster.keys, "other")
    await other.beat(ttl_ms=100_000)
    await cluster.start_worker(
        "simulated:base_ms=2000,item_ms=0", heartbeat_ttl_s=60
    )  # in which it also counts other workers
    refs = await cluster.gateway.add(*(request(lane=BULK) for _ in range(8)))

    async def num_pending() -> int:
        return int((await cluster.raw.xpending(cluster.keys.lanes[BULK], GROUP))["pending"])

    async def has_its_share() -> bool:
        return await num_pending() >= 4

    await wait_until(has_its_share, "the worker has claimed its share")
    for _ in range(50):
        # On a slow machine the wait for the first may claim a second before the share is known.
        assert await num_pending() <= 5
        await asyncio.sleep(0.02)
    await cluster.cancel(refs)


async def test_a_reply_contains_its_timing(cluster: WorkerCluster) -> None:
    """A reply contains its time in the queue, its time in the model, and the size of its batch."""
    await cluster.start_worker("simulated:base_ms=50,item_ms=0")
    start = time.monotonic()
    request = await cluster.submit("one", "two")
    reply = await cluster.wait_for_reply(request.request_id)
    elapsed_ms = 1_000 * (time.monotonic() - start)
    request.check(reply)
    assert isinstance(reply, Vectors)
    assert reply.timing.batch_size == 2
    assert 50 <= reply.timing.inference_ms < 1_000 + elapsed_ms
    assert 0 <= reply.timing.queue_ms < 1_000 + elapsed_ms
    assert reply.dim == DIM


async def test_an_unread_reply_expires(cluster: WorkerCluster) -> None:
    """A reply that is not read expires after the rest of the deadline plus the reply's TTL."""
    await cluster.start_worker(reply_ttl_s=1)
    request = await cluster.submit("one", timeout_ms=2_000)
    key = cluster.keys.reply(request.request_id)

    async def exists() -> bool:
        return bool(await cluster.raw.exists(key))

    await wait_until(exists, "the reply exists")
    assert await cluster.raw.pttl(key) <= 3_000
    await wait_until(cluster.is_empty, "the reply has expired")


@pytest.mark.parametrize("foreign", ["operation", "version"])
async def test_an_entry_of_a_newer_gateway_stays_for_other_workers(cluster: WorkerCluster, foreign: str) -> None:
    """An entry with an unknown operation or version is handed back until its deadline; other entries are served."""
    worker = await cluster.start_worker(reclaim_idle_ms=300)
    body = Body("rerank" if foreign == "operation" else EMBED, ("text",))
    request_id = f"foreign-{foreign}"
    now = int((await cluster.raw.time())[0]) * 1_000
    fields: dict[str, Any] = {"id": request_id, "n": 1, "pos": 0, "cost": 1, "deadline_ms": now + 8_000}
    flat = [part for pair in fields.items() for part in pair]
    version = 1 if foreign == "operation" else 2
    await cluster.raw.execute_command("XADD", cluster.lane, "*", *flat, "v", version, "body", encode_body(body))
    await cluster.raw.hincrby(cluster.keys.backlog, "inputs", 1)
    await cluster.raw.hincrby(cluster.keys.backlog, "tokens", 1)

    async def is_handed_back() -> bool:
        return await metric(worker, "redbatch_handed_back_total") >= 3

    await wait_until(is_handed_back, "it was handed back three times")
    await cluster.check_replies([await cluster.submit("known")])
    assert [row["times_delivered"] for row in await cluster.pending_entries()] == [1]
    assert await cluster.wait_for_error_code(request_id) == "deadline_exceeded"
    assert await metric(worker, "redbatch_inputs_total") == 1
    await wait_until(cluster.has_no_released_consumer, "the consumer of released entries has left the group")


async def test_a_malformed_entry_is_removed(cluster: WorkerCluster) -> None:
    """Malformed entries in the stream are removed, and the valid entries around them are answered."""
    worker = await cluster.start_worker()
    valid = await cluster.submit_many([["a"], ["b"]])
    await xadd(cluster, hello="world")
    await xadd(cluster, id="x y", v=1, n=1, pos=0, cost=1, deadline_ms=1, body="")
    await xadd(cluster, id="x", v="one", n=1, pos=0, cost=1, deadline_ms=1, body="")
    await xadd(cluster, id="x", v=1, n=10**30, pos=0, cost=10**30, deadline_ms=10**15, body="")
    valid += await cluster.submit_many([["c"], ["d"]])
    await cluster.check_replies(valid)
    await wait_until(cluster.is_empty, "the malformed entries are removed")
    await cluster.check_replies(await cluster.submit_many([["e"]]))
    assert worker.running
    await cluster.raw.delete(cluster.keys.backlog)  # entries that were added directly were never counted


async def test_a_malformed_body_is_answered_with_an_error(cluster: WorkerCluster) -> None:
    """An entry with an unreadable body, or fewer inputs than its fields say, is answered with the error internal."""
    await cluster.start_worker()
    valid = await cluster.submit("good")
    for name, n, body in (("noise", 1, b"\xc1\xff"), ("fewer", 3, encode_body(Body(EMBED, ("one",))))):
        await cluster.gateway.add(Submission(name, (NewEntry(0, n, 1, body),), 10_000))
    assert await cluster.wait_for_error_code("noise") == "internal"
    assert await cluster.wait_for_error_code("fewer") == "internal"
    await cluster.check_replies([valid])
    assert await cluster.is_empty()


async def test_an_expired_entry_is_answered_and_not_run(cluster: WorkerCluster) -> None:
    """An entry whose deadline passed before a worker started is answered with deadline_exceeded, and does not run."""
    late = await cluster.submit_many([["late"], ["late", "too"]], timeout_ms=1)
    valid = await cluster.submit("good")
    worker = await cluster.start_worker()
    assert [await cluster.wait_for_error_code(each.request_id) for each in late] == ["deadline_exceeded"] * 2
    await cluster.check_replies([valid])
    assert await metric(worker, "redbatch_inputs_total") == 1
    assert await metric(worker, "redbatch_failures_total") == 2


async def test_a_cancelled_entry_is_not_run(cluster: WorkerCluster) -> None:
    """An entry that is cancelled while a worker holds it for a later batch never reaches the engine."""
    worker = await cluster.start_worker("simulated:base_ms=2000,item_ms=0", renew_ms=50)
    first = await cluster.submit("first")
    await wait_until(cluster.has_entry_in_progress, "the first batch runs")
    refs = await cluster.gateway.add(*(cluster.submission(Body(EMBED, (f"no {i}",))) for i in range(3)))

    async def are_claimed() -> bool:
        return len(await cluster.pending_entries()) == 4

    await wait_until(are_claimed, "the worker holds them")
    assert await cluster.cancel(refs) == 3
    await cluster.check_replies([first])
    await cluster.check_replies([await cluster.submit("next")])
    assert await metric(worker, "redbatch_inputs_total") == 2
    assert await metric(worker, "redbatch_dropped_total") == 3


async def test_a_worker_waits_for_the_maximum_batch_wait(cluster: WorkerCluster) -> None:
    """Entries that arrive one by one within max_batch_wait_ms share one batch."""
    await cluster.start_worker(max_batch_wait_ms=4_000)
    requests = [await cluster.submit(f"text {i}") for i in range(3)]
    waited_ms = []
    for each in requests:
        reply = await cluster.wait_for_reply(each.request_id)
        each.check(reply)
        assert isinstance(reply, Vectors)
        assert reply.timing.batch_size == 3
        waited_ms.append(reply.timing.queue_ms)
    assert waited_ms[0] >= 3_600


async def test_the_admin_port_serves_health_and_metrics(cluster: WorkerCluster) -> None:
    """The admin port in the first log line reports that the worker is ready, and serves all of its metrics."""
    worker = await cluster.start_worker("simulated:base_ms=1")
    await cluster.check_replies(await cluster.submit_many([[f"text {i}"] for i in range(20)]))
    assert [(await get_admin(worker, path)).status_code for path in ("/livez", "/readyz")] == [200, 200]
    text = (await get_admin(worker, "/metrics")).text
    for name in ("queue_wait_seconds", "batch_size", "batch_tokens", "batch_padding_ratio", "batch_gap_seconds"):
        assert f"redbatch_{name}_count" in text
    assert await metric(worker, "redbatch_batch_inference_seconds_sum") > 0

    async def are_counted() -> bool:
        return await metric(worker, "redbatch_commits_total") == 20

    await wait_until(are_counted, "all commits are counted, as the worker does after each")
    assert await metric(worker, "redbatch_worker_up") == 1


async def test_a_worker_is_not_ready_before_its_engine(cluster: WorkerCluster) -> None:
    """Until the engine is ready, /readyz names it, /livez is 200, and redbatch_worker_up is 0 instead of missing."""
    worker = await cluster.start_worker("minilm", ready=False)
    await wait_until(lambda: bool(worker.log_records("worker starts")), "the admin port is open")
    page = (await get_admin(worker, "/metrics")).text
    assert re.findall(r"^redbatch_worker_up\{.*\} (.*)$", page, re.MULTILINE) == ["0.0"]
    answer = await get_admin(worker, "/readyz")
    assert answer.status_code == 503
    assert "engine" in answer.text
    assert (await get_admin(worker, "/livez")).status_code == 200


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "simulated:base=1"}, "write simulated:base_ms=5,item_ms=3"),
        ({"model": "/no/such/folder"}, "there is no such folder"),
        ({"max_batch_size": "0"}, "--max-batch-size (REDBATCH_MAX_BATCH_SIZE)"),
    ],
)
async def test_wrong_settings_end_the_worker(cluster: WorkerCluster, settings: dict[str, str], message: str) -> None:
    """With a model or a setting that is wrong, the worker ends with exit code 2 and a line with the cause."""
    worker = await cluster.start_worker(**{"model": "null", "ready": False} | settings)  # type: ignore[arg-type]
    assert await worker.wait_until_ended() == 2
    assert message in worker.output
    assert "Traceback" not in worker.output


@pytest.mark.slow
@pytest.mark.timeout(240)  # two engines import torch, which takes each over 40 s on a machine under a load of 13
async def test_a_worker_says_that_it_downloads_its_model(
    cluster: WorkerCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of the hub that this machine does not have is named in a line before its download; offline there is none.

    Nothing listens at the address of the hub, so that the model never arrives.
    """
    event = "the model is downloaded from the Hugging Face hub"
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    worker = await cluster.start_worker("some/model", ready=False)
    await wait_until(lambda: bool(worker.log_records(event)), "the download is logged", timeout_s=100)
    assert worker.log_records(event)[0]["model"] == "some/model"
    worker.kill()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = await cluster.start_worker("some/model", ready=False)
    assert await offline.wait_until_ended(100) == 2
    assert offline.log_records(event) == []
    assert "some/model cannot be loaded: it is not in HF_HOME, and HF_HUB_OFFLINE forbids downloads" in offline.output
    assert OFFLINE in offline.output


async def test_a_hub_that_does_not_answer_ends_the_worker_soon(
    cluster: WorkerCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of the hub without a way to it is an error that says what to do, before the libraries try for minutes."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    worker = await cluster.start_worker("sentence-transformers/all-mpnet-base-v2", ready=False)
    assert await worker.wait_until_ended() == 2
    assert "cannot be downloaded: http://127.0.0.1:1 does not answer (Connection refused)" in worker.output
    assert OFFLINE in worker.output
    assert "Traceback" not in worker.output


async def test_a_model_that_never_loaded_leaves_no_queue(cluster: WorkerCluster) -> None:
    """Gateways would serve the queue of a mistyped class for ten minutes, and accept jobs that nothing runs.

    A queue that was there before stays: its workers may only be restarting.
    """
    worker = await cluster.start_worker("math:Clas", ready=False)
    assert await worker.wait_until_ended() == 2
    assert "module 'math' has no attribute 'Clas'" in worker.output
    assert cluster.keys.queue not in await producer.list_queues(cluster.connection)
    await consumer.announce(cluster.connection, cluster.keys)
    worker = await cluster.start_worker("math:Clas", ready=False)
    assert await worker.wait_until_ended() == 2
    assert cluster.keys.queue in await producer.list_queues(cluster.connection)


async def test_a_worker_that_joins_another_model_warns(cluster: WorkerCluster) -> None:
    """Once its own model is loaded, its log names the models of the queue's workers and what to do."""
    first, twin = [await cluster.start_worker("simulated:revision=1") for _ in range(2)]
    second = await cluster.start_worker("simulated:revision=2")
    await wait_until(lambda: bool(second.log_records(MIXED_MODELS)), "the worker warns")
    (record,) = second.log_records(MIXED_MODELS)
    models = [f"simulated:revision={number} ({DIM} dimensions)" for number in (1, 2)]
    assert (record["level"], record["queue"], record["models"]) == ("warning", cluster.keys.queue, models)
    assert not first.log_records(MIXED_MODELS) + twin.log_records(MIXED_MODELS)


@pytest.mark.parametrize("name", [b"another", b"\xff"], ids=["a key of another type", "no name"])
async def test_unreadable_heartbeats_do_not_end_a_worker(cluster: WorkerCluster, name: bytes) -> None:
    """They cannot be compared with its own. It says so, and serves."""
    await cluster.raw.zadd(cluster.keys.workers, {name: time.time() * 1000})
    await cluster.raw.rpush(cluster.keys.worker("another"), "x")
    worker = await cluster.start_worker(ready=False)
    warning = "the heartbeats of the queue's other workers cannot be read"
    await wait_until(lambda: bool(worker.log_records(warning)), "it says so", timeout_s=30)
    await submit_and_check(cluster, [[["a"]]])
    await cluster.raw.zrem(cluster.keys.workers, name)
    await cluster.raw.delete(cluster.keys.worker("another"))


async def test_a_folder_without_a_model_ends_the_worker(cluster: WorkerCluster, tmp_path: Path) -> None:
    """If the engine cannot load the model, the worker ends with exit code 2, because a restart would not help."""
    (tmp_path / "empty").mkdir()
    worker = await cluster.start_worker(str(tmp_path / "empty"), ready=False)
    assert await worker.wait_until_ended(100) == 2
    assert "cannot be loaded" in worker.output
    assert await cluster.consumers() == set()
