"""Batches of many single-input requests: `max_batch_size` means what it says, whatever the window and the tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.keys import GROUP
from shared.messages import PREDICT, Body, Reply, Values
from tests.integration.worker.worker_cluster import WorkerCluster, metric
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[3]
SLOW_FUNCTION = "tests.integration.functions.function_models:Echo"
GATED_FUNCTION = "tests.integration.functions.function_models:Gated"
REQUESTS, MAX_BATCH_SIZE = 10_000, 2_000
MAX = 10_000
"""The largest `max_batch_size` that there is."""

MARGIN = 512
"""More than the batch has that is made ready as the first inputs arrive."""

MAX_SUBMIT = 5_000

PADDING = "x" * 60
"""The gateway estimates 17 tokens for such an input. Those of a full batch are many times what a batch may have."""


def result_of(reply: Reply) -> tuple[object, int]:
    """Returns the value that the function got, and the size of its batch. Raises AssertionError if it is an error."""
    assert isinstance(reply, Values), reply
    value, size = orjson.loads(reply.values[0])
    return value, size


async def test_waiting_single_inputs_fill_large_batches(
    cluster: WorkerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 requests wait: batches of 2,000 run, and while one runs the next is claimed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    values = [f"{i} {PADDING}" for i in range(REQUESTS)]
    submissions = [cluster.submission(Body(PREDICT, (orjson.dumps(each).decode(),)), 120_000) for each in values]
    await cluster.gateway.add(*submissions)
    await cluster.start_worker(SLOW_FUNCTION, max_batch_size=MAX_BATCH_SIZE, model_args='{"batch_s": 1.0}')

    async def has_claimed_ahead() -> bool:
        running = len(await cluster.entries_in_progress())
        claimed: Any = await cluster.raw.xpending(cluster.lane, GROUP)
        return running == MAX_BATCH_SIZE and int(claimed["pending"]) >= 2 * running

    await wait_until(has_claimed_ahead, "a large batch runs, and another one is claimed", timeout_s=60)
    results = [result_of(await cluster.wait_for_reply(each.request_id, 60)) for each in submissions]
    assert [value for value, _ in results] == values
    assert max(size for _, size in results) == MAX_BATCH_SIZE
    assert await cluster.is_empty()


@pytest.mark.parametrize(
    ("num_waiting", "wait_ms", "min_largest"),
    [
        pytest.param(MAX + MARGIN, 0, MAX // 2, marks=pytest.mark.long),
        pytest.param(2 * MAX + MARGIN, 0, MAX, marks=pytest.mark.long),
        (MAX, 1, MAX),
    ],
)
async def test_the_largest_batch_has_up_to_ten_thousand_inputs(
    cluster: WorkerCluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    num_waiting: int,
    wait_ms: int,
    min_largest: int,
) -> None:
    """While a batch runs, all others arrive. Without a wait, a batch has half of 10,000, or all of 10,000 of 20,000.

    With a wait for full batches, however short, it has all 10,000.
    """
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    gate, arrived = tmp_path / "gate", tmp_path / "arrived"
    args = {"gate": str(gate), "arrived": str(arrived), "num_inputs": num_waiting + 1}
    worker = await cluster.start_worker(
        GATED_FUNCTION,
        max_batch_size=MAX,
        max_batch_wait_ms=wait_ms,
        model_args=orjson.dumps(args).decode(),
        engine_hang_s=150,
    )
    submissions = [cluster.submission(Body(PREDICT, (f"{i}",)), 170_000) for i in range(num_waiting + 1)]
    await cluster.gateway.add(submissions[0])
    await wait_until(cluster.has_entry_in_progress, "the first batch runs")
    for start in range(1, num_waiting + 1, MAX_SUBMIT):
        reply = await cluster.gateway.submit(*submissions[start : start + MAX_SUBMIT], bound=3 * MAX)
        assert {outcome.status for outcome in reply.outcomes} == {"ok"}

    async def holds_all() -> bool:
        return arrived.exists() and await metric(worker, "redbatch_held_entries") == num_waiting + 1

    await wait_until(holds_all, "the worker and its engine hold all entries", timeout_s=90)
    gate.touch()
    results = [result_of(await cluster.wait_for_reply(each.request_id, 60)) for each in submissions]
    assert [value for value, _ in results] == list(range(num_waiting + 1))
    assert results[0][1] == 1
    assert min_largest <= max(size for _, size in results) <= MAX
    assert await cluster.is_empty()


async def test_a_preferred_size_goes_at_once_and_what_is_left_waits(
    cluster: WorkerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a wait of a minute, five inputs make a batch of four; three more make the next one."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    await cluster.start_worker(SLOW_FUNCTION, preferred_batch_sizes="4,8", max_batch_wait_ms=60_000, max_batch_size=64)
    submissions = [cluster.submission(Body(PREDICT, (f"{i}",)), 120_000) for i in range(8)]
    keys = [cluster.keys.reply(each.request_id) for each in submissions]

    async def has_four_replies() -> bool:
        return bool(await cluster.raw.exists(*keys) == 4)

    await cluster.gateway.add(*submissions[:5])
    await wait_until(has_four_replies, "a batch of four has run")
    assert len(await cluster.pending_entries()) == 1
    await cluster.gateway.add(*submissions[5:])
    results = [result_of(await cluster.wait_for_reply(each.request_id)) for each in submissions]
    assert results == [(i, 4) for i in range(8)]
