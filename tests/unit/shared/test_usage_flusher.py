"""What a process has counted reaches Redis once, also if calls fail."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from shared import usage_flusher
from shared.errors import RedisUnreachableError
from shared.script_arguments import UsageAddArguments, UsageRow
from shared.usage_counts import Usage, UsageCounts, UsageKey
from shared.usage_flusher import UsageFlusher

KEY = UsageKey("web", "minilm", "embed")
NUM_ARGUMENTS, ROW_SIZE = len(UsageAddArguments._fields), len(UsageRow._fields)


class FakeRedis:
    """A connection whose calls fail, before or after Redis has added what they bring.

    Attributes:
        fails: how the next calls fail: `before`, `after`, or not at all ("").
        added: the requests of each call that counted.
        ages_ms: of each call.
    """

    def __init__(self) -> None:
        self.fails: list[str] = []
        self.added: list[int] = []
        self.ages_ms: list[int] = []
        self._last = 0

    async def run(self, _script: object, _keys: object, args: list[Any]) -> int:
        """Does what the script does. Raises RedisUnreachableError."""
        head = UsageAddArguments(*args[:NUM_ARGUMENTS])
        fails = self.fails.pop(0) if self.fails else ""
        if fails == "hang":
            await asyncio.Event().wait()
        is_new = fails != "before" and head.sequence_number > self._last
        if is_new:
            self._last = head.sequence_number
            rows = [UsageRow(*args[at : at + ROW_SIZE]) for at in range(NUM_ARGUMENTS, len(args), ROW_SIZE)]
            self.added.append(sum(each.requests for each in rows))
            self.ages_ms.append(head.age_ms)
        if fails:
            raise RedisUnreachableError("gone")
        return int(is_new)


class Process:
    """A process that counts requests, and its flusher."""

    def __init__(self) -> None:
        self.redis, self.counts = FakeRedis(), UsageCounts()
        self.num_reported = 0
        self.errors: list[RedisUnreachableError] = []
        redis = cast("Any", self.redis)
        self.flusher = UsageFlusher(lambda: redis, "gateway", self.counts, self._report, self.errors.append)

    def _report(self, labels: tuple[str, str], row: Usage) -> None:
        assert labels == (KEY.queue, KEY.tenant)
        self.num_reported += row.requests

    def count(self, number: int) -> None:
        """Counts requests."""
        self.counts.row(*KEY).requests += number


async def test_nothing_is_sent_if_nothing_was_counted() -> None:
    """A call has what was counted since the last one."""
    process = Process()
    assert await process.flusher.flush()
    process.count(3)
    assert await process.flusher.flush()
    assert await process.flusher.flush()
    assert process.redis.added == [3]
    assert process.num_reported == 3


@pytest.mark.parametrize("fails", [["before"], ["after"], ["before", "after"], ["after", "before", "after"]])
async def test_a_call_that_fails_is_repeated_and_counts_once(fails: list[str]) -> None:
    """Whether or not Redis had added it. What is counted meanwhile is in the next call, which has another number."""
    process = Process()
    process.redis.fails = list(fails)
    process.count(3)
    for number in range(len(fails)):
        assert not await process.flusher.flush()
        process.count(10 + number)
    assert await process.flusher.flush()
    expected = sum(range(10, 10 + len(fails)))
    assert process.redis.added == [3, expected]
    assert process.num_reported == 3 + expected
    assert len(process.errors) == len(fails)


async def test_what_is_counted_in_a_long_outage_keeps_its_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes into several calls, each with its age, up to a bound; after that, into the last one."""
    process, now_s = Process(), 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    process.redis.fails = ["before"] * 100
    for _ in range(100):
        process.count(1)
        assert not await process.flusher.flush()
        now_s += usage_flusher.MERGE_S
    assert await process.flusher.flush()
    assert sum(process.redis.added) == 100
    assert process.redis.added[:-1] == [1] * (usage_flusher.MAX_BATCHES - 1)
    step_ms = round(usage_flusher.MERGE_S * 1000)
    assert process.redis.ages_ms == [step_ms * (100 - number) for number in range(usage_flusher.MAX_BATCHES)]


async def test_the_end_of_a_process_waits_for_redis_only_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It logs how many rows are lost."""
    monkeypatch.setattr(usage_flusher, "FLUSH_TIMEOUT_S", 0.01)
    process = Process()
    process.count(1)
    process.redis.fails = ["hang", ""]
    with capture_logs() as logs:
        await process.flusher.stop()
        await process.flusher.stop()
    assert [each["rows"] for each in logs] == [1]
    assert process.redis.added == [1]
