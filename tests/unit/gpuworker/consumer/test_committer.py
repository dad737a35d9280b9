"""Answers on which Redis fails, and what counts of those that it takes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from gpuworker.consumer.committer import MAX_ANSWERS, Committer
from gpuworker.consumer.worker_state import ShardState, WorkerState
from gpuworker.settings import WorkerSettings
from shared import scripts
from shared.keys import Keys
from shared.messages import Entry, Failure, Ref, Vectors
from shared.process.tasks import cancel_and_wait
from shared.redis_errors import UnexpectedReplyError
from shared.usage_counts import Usage
from tests.waiting import wait_until


class FailingRedis:
    """Fails on each commit of an entry id in `bad`.

    Attributes:
        committed: the entry ids of the commits that succeeded.
        num_failures: the number of the others.
        lost: entry ids whose commit finds nothing.
    """

    def __init__(self, *bad: bytes) -> None:
        self.bad = set(bad)
        self.committed: list[bytes] = []
        self.num_failures = 0
        self.lost: set[bytes] = set()

    async def run(self, script: scripts.Script, _keys: list[str], args: list[Any]) -> Any:  # noqa: ANN401 - as RedisConnection
        """Returns what the script returns. Raises UnexpectedReplyError."""
        assert script is scripts.COMMIT
        ids = [each for each in args if isinstance(each, bytes) and each.endswith(b"-0")]
        if self.bad & set(ids):
            self.num_failures += 1
            raise UnexpectedReplyError("Redis fails.")
        self.committed += ids
        return [0, [int(each not in self.lost) for each in ids]]


async def test_an_answer_on_which_redis_fails_holds_up_no_other() -> None:
    """It is tried again behind all others, and the worker counts Redis as away until it succeeds."""
    redis = FailingRedis(b"3-0")
    state = WorkerState(WorkerSettings(model="null"), "w")
    shard = ShardState(state, Keys("q"), cast("Any", redis), refused_calls=set())
    committer = Committer(shard, cast("Any", redis))
    ids = [b"%d-0" % number for number in range(MAX_ANSWERS // 4)]
    for number, entry_id in enumerate(ids):
        entry = Entry(Ref(0, entry_id, 1, 1), 1, f"{number:032}", 0, 2**42, "", "", b"")
        held = state.in_flight.add(entry, 0, ())
        committer.answer(held, Failure(entry.request_id, 0, 1, "input_failed", "failed"))
    running = asyncio.create_task(committer.run())
    await wait_until(lambda: len(redis.committed) == len(ids) - 1, "the others are committed")
    assert shard.refused_calls == {"commit"}
    assert redis.num_failures < len(ids) / 2
    redis.bad = set()
    await wait_until(lambda: not shard.refused_calls, "all are committed")
    assert sorted(redis.committed) == sorted(ids)
    assert not len(state.in_flight)
    await cancel_and_wait([running])


async def test_inputs_and_tokens_count_for_the_tenant_whose_answer_was_the_first() -> None:
    """Not those of entries that another worker has answered, that are cancelled, or that failed."""
    redis = FailingRedis()
    redis.lost = {b"1-0"}
    state = WorkerState(WorkerSettings(model="null"), "w")
    committer = Committer(ShardState(state, Keys("q"), cast("Any", redis)), cast("Any", redis))
    for number in range(4):
        ref = Ref(0, b"%d-0" % number, 2, 1)
        entry = Entry(ref, 1, f"{number:032}", 0, 2**42, "", "", b"", tenant="web" if number < 2 else "shop")
        reply = Vectors(entry.request_id, 0, 2, 1, bytes(8), tokens=(3, 4))
        failure = Failure(entry.request_id, 0, 2, "input_failed", "failed")
        committer.answer(state.in_flight.add(entry, 0, ()), failure if number == 3 else reply)
    running = asyncio.create_task(committer.run())
    await wait_until(lambda: not len(state.in_flight), "all are committed")
    await cancel_and_wait([running])
    counted = Usage(inputs=2, tokens=7)
    assert state.usage.rows() == {("web", "null", "embed"): counted, ("shop", "null", "embed"): counted}
