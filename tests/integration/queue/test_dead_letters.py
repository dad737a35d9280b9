"""Dead letters: written by the commit that gives an entry up, read and repaired by people."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import redis.asyncio

from shared import consumer, dead_letters
from shared.codec import decode_body, encode_body
from shared.messages import EMBED, Body, NewEntry
from shared.producer import Submission
from shared.queue_connections import QueueConnections
from tests.integration.queue.actors import BUDGET_MS, Gateway, Worker, request
from tests.integration.queue.conftest import Lane

pytestmark = [pytest.mark.redis, pytest.mark.leaves_dead_letters, pytest.mark.asyncio]
USER = "admin"

ERROR = "input_failed: it kills"


async def dead(queue: QueueConnections) -> list[dead_letters.DeadLetter]:
    """Returns all dead letters, newest first, with their bodies."""
    connection = queue.connection("dead")
    listed = await dead_letters.read(connection, queue.keys, 10_000)
    found = [await dead_letters.find(connection, queue.keys, each.letter_id) for each in listed]
    letters = [each for each in found if each is not None]
    assert [replace(each, body=None) for each in letters] == listed
    return letters


async def test_an_entry_given_up_is_answered_and_kept(
    queue: QueueConnections, gateway: Gateway, worker: Worker, lane: Lane
) -> None:
    """The letter holds the entry, its attempts, its error, the worker and the time; the lane is clean."""
    submission = request(n=2)._replace(tenant="acme")
    await gateway.add(submission)
    before = await worker.now_ms()
    (entry,) = [each._replace(attempts=3) for each in await worker.claim()]
    assert await worker.give_up([entry]) == [True]
    (letter,) = await dead(queue)
    assert (letter.request_id, letter.inputs, letter.attempts) == (submission.request_id, 2, 3)
    assert (letter.worker, letter.error, letter.lane) == ("worker-1", ERROR, "interactive")
    assert letter.entry_id.encode() == entry.ref.entry_id
    assert letter.submitted_ms <= before <= letter.died_ms <= await worker.now_ms()
    assert letter.body == entry.body
    assert len(await lane.replies(submission.request_id)) == 1
    assert (await lane.length(), await lane.backlog()) == (0, (0, 0))
    fields: Any = await lane.client.xrange(queue.keys.dead)
    assert fields[0][1][b"tenant"] == b"acme"


async def test_only_the_commit_that_counts_writes_a_letter(
    queue: QueueConnections, gateway: Gateway, worker: Worker, other: Worker
) -> None:
    """If two workers give an entry up there is one letter, and none if an answer came first."""
    await gateway.add(request(), request())
    mine = await worker.claim()
    theirs = await other.reclaim()
    won = await asyncio.gather(worker.give_up(mine[:1]), other.give_up(theirs[:1]))
    assert sorted(flags[0] for flags in won) == [False, True]
    assert await worker.commit(mine[1:]) == [True]
    assert await other.give_up(theirs[1:]) == [False]
    assert [letter.entry_id.encode() for letter in await dead(queue)] == [mine[0].ref.entry_id]


async def test_an_answer_writes_no_letter(queue: QueueConnections, gateway: Gateway, worker: Worker) -> None:
    """Neither an answer nor the removal of an entry without a request writes a letter."""
    refs = await gateway.add(request(), request())
    entries = await worker.claim()
    await worker.commit(entries[:1])
    await consumer.discard(worker.connection, worker.keys, refs[1:])
    assert await dead(queue) == []


async def test_many_letters_are_listed_in_several_calls(
    queue: QueueConnections, raw: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is listed once, up to the limit."""
    ids = [f"{number}-0" for number in range(7, 0, -1)]
    for each in reversed(ids):
        await raw.xadd(queue.keys.dead, {"body": "x"}, id=each)
    monkeypatch.setattr(dead_letters, "LETTERS_PER_CALL", 3)
    for limit in (0, 1, 3, 5, 6, 7, 100):
        letters = await dead_letters.read(queue.connection("dead"), queue.keys, limit)
        assert [each.letter_id for each in letters] == ids[:limit]
        assert {each.body for each in letters} <= {None}


@pytest.mark.parametrize("limit", [0, 3])
async def test_the_last_letters_are_kept(queue: QueueConnections, gateway: Gateway, worker: Worker, limit: int) -> None:
    """The last `max_dead_letters` letters are kept; none with 0."""
    await gateway.add(*(request() for _ in range(5)))
    entries = await worker.claim()
    await worker.give_up(entries, max_dead_letters=limit)
    kept = [letter.entry_id.encode() for letter in await dead(queue)]
    assert kept == [entry.ref.entry_id for entry in reversed(entries)][:limit]
    assert await dead_letters.count(queue.connection("count"), queue.keys) == limit


async def test_giving_up_works_when_memory_is_full(
    queue: QueueConnections, gateway: Gateway, worker: Worker, raw: redis.asyncio.Redis
) -> None:
    """The answer and the letter are written even then: the entry that they replace is larger."""
    await gateway.add(request())
    entries = await worker.claim()
    await raw.config_set("maxmemory", 1)
    try:
        assert await worker.give_up(entries) == [True]
    finally:
        await raw.config_set("maxmemory", 0)
    assert len(await dead(queue)) == 1


async def test_a_long_body_is_not_kept(queue: QueueConnections, gateway: Gateway, worker: Worker) -> None:
    """A letter of an entry with a long body has none, and cannot be run again."""
    body = encode_body(Body(EMBED, ("x" * consumer.MAX_DEAD_BODY_BYTES,)))
    await gateway.add(Submission("long", (NewEntry(0, 1, 10, body),), BUDGET_MS))
    await worker.give_up(await worker.claim())
    (letter,) = await dead(queue)
    assert (letter.request_id, letter.body) == ("long", None)
    outcome = await dead_letters.requeue(queue.connection("dead"), queue.keys, letter.letter_id, "again", 1_000)
    assert outcome == ("no body", None)
    assert len(await dead(queue)) == 1


async def test_a_letter_is_run_again_as_a_new_request(
    queue: QueueConnections, gateway: Gateway, worker: Worker, lane: Lane
) -> None:
    """The copy has a new id, a new deadline and no attempts. The letter stays: the copy may not be answered."""
    submission = request(n=2, cost=7, bell="rb:{q}:bell:gone")._replace(tenant="acme", traceparent="of its trace")
    await gateway.add(submission)
    (entry,) = await worker.claim()
    await worker.give_up([entry._replace(attempts=3)])
    (letter,) = await dead(queue)
    outcome, ref = await dead_letters.requeue(queue.connection("dead"), queue.keys, letter.letter_id, "again", 60_000)
    assert outcome == "ok"
    assert await dead(queue) == [letter]
    assert await lane.backlog() == (2, 7)
    (again,) = await worker.claim()
    assert again.ref == ref
    assert (again.request_id, again.attempts, again.bell, again.version) == ("again", 0, "", entry.version)
    assert decode_body(again.body) == decode_body(entry.body)
    assert 30_000 < again.deadline_ms - await worker.now_ms() <= 60_000
    assert (await lane.fields())[0][b"tenant"] == b"acme"
    assert again.traceparent == "of its trace"
    assert await worker.commit([again]) == [True]
    assert await lane.backlog() == (0, 0)


async def test_what_is_not_there_is_neither_found_nor_run_nor_deleted(queue: QueueConnections) -> None:
    """An invalid id is no error of Redis: no letter is found, run or deleted. Redis takes no digits but ASCII ones."""
    connection = queue.connection("dead")
    for letter_id in ("1-1", "nonsense", "-", "+", "", "\u0661-\u0660"):
        assert await dead_letters.find(connection, queue.keys, letter_id) is None
        assert await dead_letters.requeue(connection, queue.keys, letter_id, "again", 1_000) == ("gone", None)
        assert await dead_letters.purge(connection, queue.keys, [letter_id]) == 0


async def test_letters_are_purged_by_id(queue: QueueConnections, gateway: Gateway, worker: Worker) -> None:
    """Exactly the letters with the given ids are deleted."""
    await gateway.add(*(request() for _ in range(3)))
    await worker.give_up(await worker.claim())
    connection, letters = queue.connection("dead"), await dead(queue)
    assert await dead_letters.purge(connection, queue.keys, [letters[0].letter_id, letters[2].letter_id, "7-7"]) == 2
    assert await dead(queue) == [letters[1]]
    assert await dead_letters.find(connection, queue.keys, letters[1].letter_id) == letters[1]


async def test_a_letter_written_by_hand_is_read(queue: QueueConnections, raw: redis.asyncio.Redis) -> None:
    """Missing fields are empty, and invalid numbers count as 0."""
    await raw.xadd(queue.keys.dead, {"n": "many", "entry": "x", "error": b"\xff"})
    (letter,) = await dead(queue)
    assert (letter.inputs, letter.attempts, letter.submitted_ms, letter.worker, letter.body) == (0, 0, 0, "", None)
    await raw.xadd(queue.keys.dead, {"n": "many", "v": "1", "pos": "0", "cost": "1", "body": "x"})
    (letter, _) = await dead(queue)
    connection = queue.connection("dead")
    assert await dead_letters.requeue(connection, queue.keys, letter.letter_id, "again", 1_000) == ("unreadable", None)
    assert await raw.exists(queue.keys.lanes[0]) == 0
    assert await dead_letters.purge_all(connection, queue.keys) == 2
    assert await dead(queue) == []
