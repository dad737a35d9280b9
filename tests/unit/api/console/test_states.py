"""The state of all queues: one read of Redis is for all viewers, and a Redis that is away is named."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

import pytest

from api.console import shard_reads
from api.console.states import FRESH_S, QueueStates
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.messages import Heartbeat
from shared.queue_view import SILENT_S
from shared.shard_connections import ShardConnection

BEAT = Heartbeat("gpu-1", "host-1", 7, "cuda:0", "minilm", 384, "ready", 21_000.0, 256, 64, 10**30, revision="8aadba9b")


class FakeRedis:
    """A connection that answers with one worker, or with an error; each read waits until it may go on."""

    def __init__(self) -> None:
        self.num_reads = 0
        self.error: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def keys_of(self, queue: str) -> Keys:
        """Returns the keys of a queue."""
        return Keys(queue)

    async def run(self, *_: object) -> list[Any]:
        """Answers what the script of queue_stats does."""
        self.num_reads += 1
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        beat = json.dumps(asdict(BEAT)).encode()
        return [9_000, b"1", 5, 90, [4, 0], 1, [b"8000-0", b""], 8_500, [beat], 0, 0, 0, 0, 2, 3, 0, 0, 0, 0, b""]

    async def call(self, *_: object) -> list[bytes]:
        """Answers with the time of the worker's heartbeat; Redis may have others that are no worker's."""
        return [b"gpu-1", b"8500", b"\xff", b"inf"]

    async def check_home(self) -> None:
        """Finds the home."""


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        """Returns its time, s."""
        return self.now


def states_of(*shards: FakeRedis, clock: Clock | None = None) -> QueueStates:
    """Returns the states of a queue on these shards."""
    connections = [
        ShardConnection(number, f"redis://r{number}", shard, Keys("minilm"))  # type: ignore[arg-type]
        for number, shard in enumerate(shards)
    ]
    return QueueStates(connections, lambda: ["minilm"], clock or Clock())


async def state_of(states: QueueStates) -> dict[str, Any]:
    """Returns the state, parsed."""
    state: dict[str, Any] = json.loads(await states.as_json())
    return state


async def test_one_read_is_for_all_viewers() -> None:
    """Those that ask during a read get its state, and so do those that ask until it is a second old."""
    redis, clock = FakeRedis(), Clock()
    states = states_of(redis, clock=clock)
    redis.may_answer.clear()
    viewers = [asyncio.create_task(states.as_json()) for _ in range(50)]
    await asyncio.sleep(0)
    viewers.pop().cancel()  # who leaves does not end the read of the others
    redis.may_answer.set()
    assert len(set(await asyncio.gather(*viewers))) == 1
    clock.now += FRESH_S - 0.1
    assert (await state_of(states))["age_s"] == pytest.approx(0.9)
    assert redis.num_reads == 1
    clock.now += 0.1
    assert (await state_of(states))["age_s"] == 0
    assert redis.num_reads == 2


async def test_the_state_has_what_a_person_looks_for() -> None:
    """Queues by lane, the age of the heartbeat, jobs and dead letters; integers of any size, as workers send them."""
    state = await state_of(states_of(FakeRedis()))
    (queue,) = state["queues"]
    (worker,) = queue["workers"]
    assert (state["silent_after_s"], state["problems"]) == (SILENT_S, [])
    assert queue["entries_by_lane"] == {"interactive": 4, "bulk": 0}
    assert queue["oldest_age_ms_by_lane"] == {"interactive": 1_000, "bulk": None}
    assert (queue["dead_letters"], queue["open_jobs"]) == (2, 3)
    assert (worker["silent_s"], worker["revision"], worker["up_s"]) == (0.5, "8aadba9b", 0)


async def test_a_redis_that_is_away_is_named_and_no_number_is_invented() -> None:
    """Without any Redis there are no queues; without one of two shards, the numbers are those of the other."""
    away, other = FakeRedis(), FakeRedis()
    away.error = RedisUnreachableError("Redis did not answer: secret", quoted="secret")
    problem = {"shard": 0, "redis": "redis://r0", "error": "Redis did not answer: …"}
    alone = await state_of(states_of(away))
    assert (alone["problems"], alone["queues"]) == ([problem], [])
    both = await state_of(states_of(away, other))
    assert both["problems"] == [problem]
    assert [each.get("waiting_entries") for each in both["queues"][0]["shards"]] == [None, 3]
    assert both["queues"][0]["waiting_entries"] == 3


async def test_a_failed_read_is_repeated_after_a_second() -> None:
    """An unexpected error is that of all viewers until then: it does not multiply the reads."""
    redis, clock = FakeRedis(), Clock()
    redis.error = ValueError("unexpected")
    states = states_of(redis, clock=clock)
    for _ in range(2):
        with pytest.raises(ValueError, match="unexpected"):
            await states.as_json()
    assert redis.num_reads == 1
    redis.error = None
    clock.now += FRESH_S
    assert (await state_of(states))["queues"]


async def test_a_redis_that_hangs_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as one that does not answer."""
    monkeypatch.setattr(shard_reads, "READ_TIMEOUT_S", 0.01)
    hangs, other = FakeRedis(), FakeRedis()
    hangs.may_answer.clear()
    state = await state_of(states_of(hangs, other))
    assert state["problems"] == [
        {"shard": 0, "redis": "redis://r0", "error": "Redis did not answer in time: try again."}
    ]
    assert state["queues"][0]["waiting_entries"] == 3


async def test_stopping_ends_the_read() -> None:
    """A gateway that shuts down does not wait for Redis."""
    redis = FakeRedis()
    redis.may_answer.clear()
    states = states_of(redis)
    viewer = asyncio.create_task(states.as_json())
    await asyncio.sleep(0)
    await states.stop()
    with pytest.raises(asyncio.CancelledError):
        await viewer
