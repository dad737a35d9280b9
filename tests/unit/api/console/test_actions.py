"""Dead letters at the console: a bounded number of requeues, and a list while a shard is away."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from api.console import actions as actions_module
from api.console.actions import MAX_REQUEUES, QueueActions
from api.console.lists import FRESH_S, MAX_LISTS, QueueLists
from shared.dead_letter_requeue import ANSWERED, RequeueResult
from shared.errors import NotFoundError, OverloadedError, RedisUnreachableError
from shared.keys import Keys
from shared.shard_connections import ShardConnection


class FakeRedis:
    """A connection to a Redis with one dead letter, or to one that is away."""

    def __init__(self, *, is_away: bool = False) -> None:
        self.is_away = is_away
        self.num_reads = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def keys_of(self, queue: str) -> Keys:
        """Returns the keys of a queue."""
        return Keys(queue)

    async def check_home(self) -> None:
        """Finds the home."""

    async def call(self, *_: object) -> int:
        """Answers how many dead letters there are."""
        return 1

    async def run(self, *_: object) -> list[Any]:
        """Answers what the script dead_list does, as soon as it may."""
        self.num_reads += 1
        await self.may_answer.wait()
        if self.is_away:
            raise RedisUnreachableError("Redis is away.")
        return [(b"5-0", [b"lane", b"bulk", b"error", b"it kills"])]


def shards_of(*connections: FakeRedis) -> list[ShardConnection]:
    """Returns shards with these connections."""
    return [
        ShardConnection(number, f"redis-{number}", cast("Any", each), Keys("q"))
        for number, each in enumerate(connections)
    ]


async def test_requeues_wait_for_each_other_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One runs at a time; one too many is refused; after the answers there is room again."""
    may_answer, running = asyncio.Event(), list[str]()

    async def requeue_and_wait(_connection: object, _keys: Keys, letter_id: str, _timeout_s: float) -> RequeueResult:
        running.append(letter_id)
        await may_answer.wait()
        return RequeueResult(ANSWERED, "")

    monkeypatch.setattr(actions_module, "requeue_and_wait", requeue_and_wait)
    shards = shards_of(FakeRedis())
    actions = QueueActions(shards, shards)
    tasks = [asyncio.create_task(actions.requeue("q", f"{number}-0")) for number in range(MAX_REQUEUES)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert running == ["0-0"]
    with pytest.raises(OverloadedError, match="wait until these are answered"):
        await actions.requeue("q", "9-0")
    may_answer.set()
    assert {each.code for each in await asyncio.gather(*tasks)} == {ANSWERED}
    assert (await actions.requeue("q", "9-0")).problem == ""
    with pytest.raises(NotFoundError):
        await actions.requeue("q", "7@9-0")


async def test_a_list_names_the_shard_that_is_away() -> None:
    """It has the letters of the others; without any shard, the number is unknown."""
    there, away = FakeRedis(), FakeRedis(is_away=True)
    listed = await QueueLists(shards_of(there, away)).letters("q")
    assert listed["problems"] == [{"shard": 1, "redis": "redis-1", "error": "Redis is away."}]
    assert [(each["id"], each["lane"]) for each in listed["letters"]] == [("5-0", "bulk")]
    assert listed["total"] == 1
    assert (await QueueLists(shards_of(away)).letters("q"))["total"] is None


async def test_a_list_is_read_again_when_it_is_old_changed_or_one_of_many() -> None:
    """Until then all viewers share it."""
    redis, now = FakeRedis(), [0.0]
    lists = QueueLists(shards_of(redis), clock=lambda: now[0])

    async def reads(queue: str) -> int:
        await lists.letters(queue)
        return redis.num_reads

    assert [await reads("q"), await reads("q")] == [1, 1]
    lists.forget("q")
    assert await reads("q") == 2
    now[0] += FRESH_S
    assert await reads("q") == 3
    for number in range(MAX_LISTS + 1):
        await reads(f"queue-{number}")
    assert await reads("q") == 3 + MAX_LISTS + 2


async def test_viewers_of_a_list_share_a_read() -> None:
    """Those that ask during a read get its rows."""
    redis = FakeRedis()
    lists = QueueLists(shards_of(redis))
    redis.may_answer.clear()
    viewers = [asyncio.create_task(lists.letters("q")) for _ in range(50)]
    await asyncio.sleep(0)
    viewers.pop().cancel()  # who leaves does not end the read of the others
    redis.may_answer.set()
    rows = await asyncio.gather(*viewers)
    assert all(each is rows[0] for each in rows)
    assert redis.num_reads == 1


async def test_a_forgotten_read_ends_with_the_gateway() -> None:
    """A viewer that asks after a change gets a new read; a gateway that shuts down ends both."""
    redis = FakeRedis()
    lists = QueueLists(shards_of(redis))
    redis.may_answer.clear()
    before = asyncio.create_task(lists.letters("q"))
    await asyncio.sleep(0)
    lists.forget("q")
    after = asyncio.create_task(lists.letters("q"))
    await asyncio.sleep(0)
    await lists.stop()
    for viewer in (before, after):
        with pytest.raises(asyncio.CancelledError):
            await viewer
