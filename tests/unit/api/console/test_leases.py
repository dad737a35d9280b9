"""The leases that the console shows: nothing is read without a pool, and a missing right is named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from api.console.leases import LeaseReport
from shared.errors import RedisUnreachableError
from shared.gpu_pools import PoolMember
from shared.keys import Keys
from shared.messages import Heartbeat
from shared.redis_errors import to_exception
from shared.shard_connections import ShardConnection

BEAT = Heartbeat("first", "host-1", 7, "cuda:0", "minilm", 384, "ready", 0.0, 0, 0, 0)
MEMBER = PoolMember("minilm", replace(BEAT, gpu_pool="node", gpu_slots=("0.0", "1.0")))


class FakeRedis:
    """A connection on which the first slot is held, or that answers with an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.num_reads, self.error = 0, error

    async def check_home(self) -> None:
        """It has one master only."""

    async def run(self, *_: object) -> list[Any]:
        """Answers what the script lease_status does."""
        self.num_reads += 1
        if self.error is not None:
            raise self.error
        return [9_000, [[]], [[b"first:5f 41", 12_900], [b"", -2]]]


def report_of(redis: FakeRedis, *members: PoolMember) -> LeaseReport:
    """Returns the report on these workers."""
    return LeaseReport([ShardConnection(0, "redis://r", redis, Keys("minilm"))], lambda: members)  # type: ignore[arg-type]


async def test_the_report_is_what_the_command_prints() -> None:
    """Slots with their holders, from one read for all viewers."""
    redis = FakeRedis()
    report = report_of(redis, MEMBER, PoolMember("minilm", BEAT))
    answers = [json.loads(await report.as_json()) for _ in range(3)]
    held = {"slot": "0.0", "state": "held", "worker": "first", "queue": "minilm", "host": "host-1"}
    slots = [held | {"fence": 41, "left_s": 12.9}, {"slot": "1.0", "state": "free"}]
    assert answers[0]["pools"] == [{"pool": "node", "slots": slots, "waiting": []}]
    assert (answers[0]["problem"], redis.num_reads) == (None, 1)


async def test_nothing_is_read_while_no_worker_shares_a_gpu() -> None:
    """Most clusters have no leases."""
    redis = FakeRedis()
    assert json.loads(await report_of(redis, PoolMember("minilm", BEAT)).as_json())["pools"] == []
    assert redis.num_reads == 0


async def test_a_missing_right_is_named() -> None:
    """The users of an older version may not read leases; any other error is that of the answer."""
    refused = to_exception("NOPERM No permissions to access a key")
    answer = json.loads(await report_of(FakeRedis(refused), MEMBER).as_json())
    assert answer["pools"] == []
    assert "docs/redis.md" in answer["problem"]
    with pytest.raises(RedisUnreachableError):
        await report_of(FakeRedis(RedisUnreachableError("away")), MEMBER).as_json()
