"""Answers on which Redis fails."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from gpuworker.consumer.committer import MAX_ANSWERS, Committer
from gpuworker.consumer.worker_state import ShardState, WorkerState
from gpuworker.settings import WorkerSettings
from shared import scripts
from shared.keys import Keys
from shared.messages import Entry, Failure, Ref
from shared.process.tasks import cancel_and_wait
from shared.redis_errors import UnexpectedReplyError
from tests.waiting import wait_until


class FailingRedis:
    """Fails on each commit of an entry id in `bad`.

    Attributes:
        committed: the entry ids of the commits that succeeded.
        num_failures: the number of the others.
    """

    def __init__(self, *bad: bytes) -> None:
        self.bad = set(bad)
        self.committed: list[bytes] = []
        self.num_failures = 0

    async def run(self, script: scripts.Script, _keys: list[str], args: list[Any]) -> Any:  # noqa: ANN401 - as RedisConnection
        """Returns what the script returns. Raises UnexpectedReplyError."""
        assert script is scripts.COMMIT
        ids = [each for each in args if isinstance(each, bytes) and each.endswith(b"-0")]
        if self.bad & set(ids):
            self.num_failures += 1
            raise UnexpectedReplyError("Redis fails.")
        self.committed += ids
        return [0, [1 for _ in ids]]


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
