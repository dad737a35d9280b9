"""Jobs in Redis: made once, fed into the lanes as there is room, answered into their results, ended once."""

from __future__ import annotations

import asyncio
import secrets
from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import redis.asyncio

from shared import jobs
from shared import consumer
from shared.codec import decode_body, encode_body, encode_reply
from shared.consumer import Abandoned, Allowance, Answer, Committing
from shared.errors import RedisUnreachable
from shared.jobs import Fed, Job, Made, Making, Room, Window
from shared.keys import BULK, INTERACTIVE, Keys
from shared.messages import EMBED, Body, Draft, Entry, Failure, Vectors
from shared.connection import Link, Queue
from tests.integration.queue.actors import GRACE_MS, Gateway, Worker, request
from tests.integration.queue.conftest import Lane
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

ROOM = Room(10_000, 1_600, 0.9)
WIDE = Window(1_024, 10**9)
PER_ENTRY = 4


def vectors(entry: Entry) -> bytes:
    """Returns the reply to an entry: for each input, its index in the job as its one number."""
    data = array("f", range(entry.position, entry.position + entry.ref.n)).tobytes()
    return encode_reply(Vectors(entry.request_id, entry.position, entry.ref.n, 1, data))


def failure(entry: Entry) -> bytes:
    """Returns an error for an entry."""
    return encode_reply(Failure(entry.request_id, entry.position, entry.ref.n, "input_failed", "no"))


@dataclass
class Office:
    """Makes jobs, and feeds the lanes with them, as workers do."""

    link: Link
    floor: Link
    keys: Keys

    async def upload(self, inputs: int, job_id: str = "") -> Making:
        """Brings the inputs of a job; each text names its index."""
        job_id = job_id or secrets.token_hex(16)
        drafts = [self.draft(start, min(PER_ENTRY, inputs - start)) for start in range(0, inputs, PER_ENTRY)]
        await jobs.put(self.link, self.keys, job_id, drafts)
        return Making(job_id, len(drafts), 0, inputs, PER_ENTRY, "ann", "ann")

    def draft(self, start: int, n: int) -> Draft:
        """Returns an entry of a job; an input counts for ten tokens."""
        return Draft(start, n, 10 * n, encode_body(Body(EMBED, tuple(f"text {start + i}" for i in range(n)))))

    async def made(self, inputs: int, wide: Window = WIDE, **how: Any) -> str:  # noqa: ANN401 - fields of Making
        """Makes a job that must be taken; returns its id."""
        making = replace(await self.upload(inputs), **how)
        assert await self.make(making, wide) == Made("ok", making.job_id)
        return making.job_id

    async def make(self, making: Making, wide: Window = WIDE, room: Room = ROOM) -> Made:
        """Makes a job of what was uploaded."""
        return await jobs.make(self.link, self.keys, making, room, wide)

    async def feed(self, wide: Window = WIDE) -> Fed:
        """Feeds the lanes."""
        return await jobs.feed(self.floor, self.keys, wide)

    async def job(self, job_id: str) -> Job:
        """Returns a job that must be there."""
        found = await jobs.find(self.link, self.keys, job_id)
        assert found is not None
        return found

    async def numbers(self, job: Job, start: int = 0, stop: int = -1) -> list[float]:
        """Returns the vectors of a job, each of which is one number."""
        found = await jobs.replies(self.link, self.keys, job, start, job.n if stop < 0 else stop)
        return [
            float(number)
            for each in found
            if isinstance(each, Vectors)
            for number in np.frombuffer(each.data, dtype="<f4")
        ]

    async def owed(self) -> dict[str, int]:
        """Returns the counters."""
        flat = await self.link.call("HGETALL", self.keys.owed)
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        return {name: int(found.get(name.encode(), 0)) for name in ("inputs", "entries", "tokens")}


@pytest.fixture
def office(queue: Queue, floor: Queue) -> Office:
    """Where jobs are made."""
    return Office(queue.link("office"), floor.link("feed"), queue.keys)


@pytest_asyncio.fixture(autouse=True)
async def emptied(queue: Queue) -> AsyncIterator[None]:
    """Ends what a test leaves open."""
    yield
    link = queue.link("end")
    for each in await jobs.latest(link, queue.keys, 100):
        await jobs.cancel(link, queue.keys, each.job_id)


async def announced(office: Office) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Returns what the results stream says."""
    found = await office.link.call("XRANGE", office.keys.results, "-", "+")
    return [(entry_id, dict(zip(flat[::2], flat[1::2], strict=True))) for entry_id, flat in found]


async def claim(worker: Worker) -> tuple[Entry, ...]:
    """Claims all that there is, bulk too."""
    claimed = await consumer.claim(worker.link, worker.keys, worker.name, Allowance(256, 10**9, 1, 0))
    assert claimed.malformed == ()
    return claimed.entries


async def answer(worker: Worker, entries: Sequence[Entry], *, fail: bool = False, revision: str = "") -> list[bool]:
    """Answers entries with vectors, or errors."""
    replies = [Answer(each, failure(each) if fail else vectors(each), failed=fail) for each in entries]
    how = Committing(worker.name, GRACE_MS, revision=revision)
    return await consumer.commit(worker.link, worker.keys, replies, how)


async def test_a_job_names_the_revisions_that_it_has_had(office: Office, worker: Worker) -> None:
    """Each once, in the order in which they came; what has failed has none."""
    job_id = await office.made(4 * PER_ENTRY)
    entries = await claim(worker)
    assert (await office.job(job_id)).revisions == ()
    for entry, revision in zip(entries, ("b", "a.1", "b", ""), strict=True):
        await answer(worker, [entry], revision=revision)
    assert (await office.job(job_id)).revisions == ("b", "a.1")
    failed = await office.made(PER_ENTRY)
    await answer(worker, await claim(worker), fail=True, revision="c")
    assert ((await office.job(failed)).status, (await office.job(failed)).revisions) == ("failed", ())


async def test_a_job_from_end_to_end(office: Office, worker: Worker, bulk_lane: Lane) -> None:
    """It is queued, runs, and is done; its vectors are in order, and nothing of it is left in the lane."""
    job_id = await office.made(10)
    assert (await office.job(job_id)).status == "queued"
    assert await bulk_lane.length() == 3
    assert (await bulk_lane.fields())[0].keys() >= {b"job", b"id", b"pos", b"tenant"}
    assert await bulk_lane.backlog() == (10, 100)
    assert await office.owed() == {"inputs": 10, "entries": 3, "tokens": 100}
    entries = await claim(worker)
    assert [(each.request_id, each.position, each.ref.n, each.job) for each in entries] == [
        (job_id, 0, 4, True),
        (job_id, 4, 4, True),
        (job_id, 8, 2, True),
    ]
    assert await answer(worker, entries[2:]) == [True]
    job = await office.job(job_id)
    assert (job.status, job.done, job.failed, job.started_ms is not None) == ("running", 2, 0, True)
    assert await answer(worker, entries[:2]) == [True, True]
    job = await office.job(job_id)
    assert (job.status, job.done, job.n, job.owner) == ("done", 10, 10, "ann")
    assert await office.numbers(job) == list(map(float, range(10)))
    assert await office.owed() == {"inputs": 0, "entries": 0, "tokens": 0}
    assert await bulk_lane.length() == 0
    assert await bulk_lane.backlog() == (0, 0)
    (result,) = await announced(office)
    assert result[1] == {b"id": job_id.encode(), b"status": b"done", b"n": b"10", b"done": b"10", b"failed": b"0"}
    for part in ("", ":out"):
        assert 0 < await bulk_lane.client.pttl(f"{office.keys.job(job_id)}{part}") <= job.ttl_ms
    assert await bulk_lane.client.exists(*(f"{office.keys.job(job_id)}:{part}" for part in ("in", "fed"))) == 0


async def test_a_commit_counts_once(office: Office, worker: Worker, other: Worker) -> None:
    """The second answer to an entry changes nothing, whoever gives it, before the job has ended and after."""
    job_id = await office.made(8)
    entries = await claim(worker)
    again = await other.reclaim()
    assert await answer(worker, entries[:1]) == [True]
    assert await answer(other, again[:1], fail=True) == [False]
    assert ((await office.job(job_id)).done, (await office.job(job_id)).failed) == (4, 0)
    assert await answer(other, again[1:]) == [True]
    assert await answer(worker, entries, fail=True) == [False, False]
    job = await office.job(job_id)
    assert (job.status, job.done, job.failed) == ("done", 8, 0)
    assert await office.owed() == {"inputs": 0, "entries": 0, "tokens": 0}
    assert len(await worker.link.call("XRANGE", office.keys.results, "-", "+")) == 1


async def test_no_more_is_in_the_lanes_than_fits(office: Office, worker: Worker, bulk_lane: Lane) -> None:
    """The rest waits beside them, and comes as answers make room."""
    narrow = Window(1_024, 100)
    job_id = await office.made(40, narrow)
    assert await bulk_lane.length() == 3  # 120 tokens: the first that is not under the bound is the last
    done = 0
    while done < 40:
        assert await bulk_lane.length() <= 3
        entries = await claim(worker)
        await answer(worker, entries)
        done += sum(each.ref.n for each in entries)
        await office.feed(narrow)
    job = await office.job(job_id)
    assert (job.status, await office.numbers(job)) == ("done", list(map(float, range(40))))


async def test_a_large_entry_passes_alone(office: Office, bulk_lane: Lane) -> None:
    """What is over the bound by itself comes when nothing else of jobs is there."""
    await office.made(8, Window(1_024, 1))
    assert await bulk_lane.length() == 1
    assert (await office.feed(Window(1_024, 1))).entries == 0


async def test_jobs_take_turns(office: Office, worker: Worker) -> None:
    """A small job does not wait for a large one that came before: that of the least tokens goes first."""
    narrow = Window(4, 10**9)
    large, small = await office.made(200, narrow), await office.made(16, narrow)
    order: list[str] = []
    for _ in range(5):
        entries = await claim(worker)
        order += [each.request_id for each in entries]
        await answer(worker, entries)
        await office.feed(narrow)
    assert (await office.job(small)).status == "done"
    assert (await office.job(large)).status == "running"
    assert order[:4] == [large] * 4  # nobody else was there
    assert order[4:12].count(small) == 4


async def test_an_idempotency_key_makes_one_job(office: Office) -> None:
    """The same is asked for again, at once by two, and later: there is one job; something else is told apart."""
    first, second = await office.upload(4), await office.upload(4)
    keyed: dict[str, Any] = {"idempotency": "k" * 8, "digest": "d1"}
    made = await asyncio.gather(office.make(replace(first, **keyed)), office.make(replace(second, **keyed)))
    assert list(made) == [Made("ok", first.job_id), Made("same", first.job_id)]
    assert await office.make(replace(await office.upload(4), **keyed)) == Made("same", first.job_id)
    assert await office.make(replace(await office.upload(4), idempotency="k" * 8, digest="d2")) == Made(
        "different", first.job_id
    )
    assert [each.job_id for each in await jobs.latest(office.link, office.keys, 10)] == [first.job_id]
    assert await office.link.call("EXISTS", f"{office.keys.job(second.job_id)}:in") == 0


async def test_inputs_that_cannot_be_run(office: Office, worker: Worker) -> None:
    """They have failed when the job is made; one that has no others has ended then."""
    job_id = secrets.token_hex(16)
    drafts = [office.draft(0, 2), office.draft(3, 1), office.draft(4, 4)]
    bad = Failure(job_id, 2, 1, "invalid_request", "The text is empty.")
    for _ in range(2):  # the answer to the first was lost
        await jobs.put(office.link, office.keys, job_id, drafts, [bad])
    assert await office.make(Making(job_id, 3, 1, 8, PER_ENTRY)) == Made("ok", job_id)
    assert (await office.job(job_id)).failed == 1
    assert (await office.owed())["inputs"] == 7
    entries = await claim(worker)
    assert [(each.position, each.ref.n) for each in entries] == [(0, 2), (3, 1), (4, 4)]
    await answer(worker, entries)
    job = await office.job(job_id)
    assert (job.status, job.done, job.failed) == ("done", 7, 1)
    assert await office.numbers(job) == [0, 1, 3, 4, 5, 6, 7]
    found = await jobs.replies(office.link, office.keys, job, 2, 4)
    assert [(each.position, each.n, type(each)) for each in found] == [(2, 1, Failure), (3, 1, Vectors)]
    none = secrets.token_hex(16)
    await jobs.put(office.link, office.keys, none, [], [bad._replace(position=0)])
    assert (await office.make(Making(none, 0, 1, 1, PER_ENTRY))).status == "ok"
    assert (await office.job(none)).status == "failed"
    assert await office.owed() == {"inputs": 0, "entries": 0, "tokens": 0}


async def test_a_repeated_make_changes_nothing(office: Office, bulk_lane: Lane) -> None:
    """Its answer was lost."""
    making = await office.upload(8)
    assert [await office.make(making) for _ in range(3)] == [Made("ok", making.job_id)] * 3
    assert await office.owed() == {"inputs": 8, "entries": 2, "tokens": 80}
    assert await bulk_lane.length() == 2


async def test_what_was_made_is_not_forgotten(office: Office, bulk_lane: Lane) -> None:
    """Whoever made it may not have heard of it, and another who sent the same has: only an upload goes."""
    job_id, unmade = await office.made(8), (await office.upload(8)).job_id
    await jobs.forget(office.link, office.keys, job_id)
    await jobs.forget(office.link, office.keys, unmade)
    assert (await office.job(job_id)).status == "queued"
    assert await bulk_lane.length() == 2
    parts = [f"{office.keys.job(unmade)}{part}" for part in ("", ":in", ":todo", ":out", ":failed")]
    assert await bulk_lane.client.exists(*parts) == 0


@pytest.mark.leaves_anything
async def test_a_damaged_job_is_in_nobodys_way(office: Office, gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """Somebody took a field away: what is answered with it in one commit is answered."""
    job_id = await office.made(4)
    asked = request()
    await gateway.add(asked)
    entries = await claim(worker)
    await lane.client.hdel(office.keys.job(job_id), "n")
    await answer(worker, sorted(entries, key=lambda each: not each.job))
    assert len(await lane.replies(asked.request_id)) == 1
    assert await lane.owners() == {}


async def test_what_is_not_whole_is_no_job(office: Office) -> None:
    """A portion went while others came: Redis lost its data, or it took too long."""
    making = await office.upload(8)
    await office.link.call("HDEL", f"{office.keys.job(making.job_id)}:in", 4)
    assert (await office.make(making)).status == "lost"
    assert await jobs.find(office.link, office.keys, making.job_id) is None
    unmade = await office.upload(8)
    assert await jobs.find(office.link, office.keys, unmade.job_id) is None
    assert 0 < await office.floor.call("PTTL", office.keys.job(unmade.job_id)) <= jobs.UPLOAD_TTL_MS
    await jobs.forget(office.link, office.keys, unmade.job_id)
    assert await office.owed() == {"inputs": 0, "entries": 0, "tokens": 0}


async def test_jobs_are_bounded(office: Office, raw: redis.asyncio.Redis) -> None:
    """By the inputs that all are owed, and by what their results will take of Redis' memory."""
    await office.made(8)
    assert (await office.make(await office.upload(4), room=Room(11, 1_600, 0.9))).status == "full"
    assert (await office.make(await office.upload(4), room=Room(12, 1_600, 0.9))).status == "ok"
    used = int((await raw.info("memory"))["used_memory"])
    await raw.config_set("maxmemory", 2 * used)
    try:
        assert (await office.make(await office.upload(4), room=Room(10_000, used // 10, 0.9))).status == "full"
        assert (await office.make(await office.upload(4), room=Room(10_000, 1_600, 0.9))).status == "ok"
    finally:
        await raw.config_set("maxmemory", 0)


async def test_nothing_is_taken_when_memory_is_full(office: Office, raw: redis.asyncio.Redis) -> None:
    """Redis refuses the inputs, and a job that it holds still ends."""
    making = await office.upload(4)
    await raw.config_set("maxmemory", 1)
    try:
        with pytest.raises(RedisUnreachable):
            await office.upload(4)
        assert (await office.make(making)).status == "full"
    finally:
        await raw.config_set("maxmemory", 0)
    assert await jobs.find(office.link, office.keys, making.job_id) is None


async def test_results_are_stored_when_memory_is_full(office: Office, worker: Worker, raw: redis.asyncio.Redis) -> None:
    """Their room was seen to when the job was taken."""
    job_id = await office.made(8)
    entries = await claim(worker)
    await raw.config_set("maxmemory", 1)
    try:
        assert await answer(worker, entries) == [True, True]
        assert (await office.job(job_id)).status == "done"
    finally:
        await raw.config_set("maxmemory", 0)


async def test_a_cancelled_job_takes_its_entries_along(office: Office, worker: Worker, bulk_lane: Lane) -> None:
    """Those that wait and those that run; an answer that comes later changes nothing."""
    job_id = await office.made(12, Window(2, 10**9))
    entries = await claim(worker)
    await answer(worker, entries[:1])
    await office.feed(Window(2, 10**9))
    assert await jobs.cancel(office.link, office.keys, job_id) == "running"
    assert await bulk_lane.length() == 0
    assert await bulk_lane.owners() == {}
    assert await bulk_lane.backlog() == (0, 0)
    assert await office.owed() == {"inputs": 0, "entries": 0, "tokens": 0}
    assert await answer(worker, entries) == [False, False]
    job = await office.job(job_id)
    assert (job.status, await office.numbers(job)) == ("cancelled", [])
    assert await jobs.cancel(office.link, office.keys, job_id) == "cancelled"
    assert await jobs.cancel(office.link, office.keys, "0" * 32) == ""
    (result,) = await announced(office)
    assert result[1][b"status"] == b"cancelled"


async def test_an_ended_job_is_not_cancelled(office: Office, worker: Worker) -> None:
    """Its result stays."""
    job_id = await office.made(4)
    await answer(worker, await claim(worker))
    assert await jobs.cancel(office.link, office.keys, job_id) == "done"
    assert await office.numbers(await office.job(job_id)) == [0, 1, 2, 3]


async def test_a_job_expires(office: Office, worker: Worker, bulk_lane: Lane) -> None:
    """With what it has; what waits of it is taken back."""
    job_id = await office.made(8, timeout_ms=300)
    entries = await claim(worker)
    await answer(worker, entries[1:])

    async def has_expired() -> bool:
        return (await office.feed()).expired == 1

    await wait_until(has_expired, "it expires")
    job = await office.job(job_id)
    assert (job.status, job.done, await office.numbers(job)) == ("expired", 4, [4, 5, 6, 7])
    assert await answer(worker, entries[:1]) == [False]
    assert await bulk_lane.length() == 0
    assert await office.owed() == {"inputs": 0, "entries": 0, "tokens": 0}


async def test_what_fails_is_named(office: Office, worker: Worker) -> None:
    """A job with failures is done, one without any vector has failed."""
    job_id = await office.made(8)
    first, second = await claim(worker)
    await answer(worker, [first], fail=True)
    await answer(worker, [second])
    job = await office.job(job_id)
    assert (job.status, job.done, job.failed) == ("done", 4, 4)
    (failed,) = await jobs.failures(office.link, office.keys, job_id, 10)
    assert (failed.position, failed.n, failed.code) == (0, 4, "input_failed")
    none = await office.made(4)
    await answer(worker, await claim(worker), fail=True)
    assert (await office.job(none)).status == "failed"


async def test_an_entry_that_fails_is_split(office: Office, worker: Worker, bulk_lane: Lane) -> None:
    """Each of its inputs runs alone, under its own position, traced as before; the results are put together again."""
    job_id = await office.made(10, traceparent="00-1-2-01")
    entries = await claim(worker)
    bodies = [encode_body(Body(EMBED, (text,))) for text in decode_body(entries[1].body).inputs]
    assert await jobs.split(office.floor, office.keys, entries[1], bodies)
    assert not await jobs.split(office.floor, office.keys, entries[1], bodies)
    assert await bulk_lane.backlog() == (10, 100)
    assert await office.owed() == {"inputs": 10, "entries": 6, "tokens": 100}
    single = await claim(worker)
    assert [(each.position, each.ref.n, decode_body(each.body).inputs) for each in single] == [
        (at, 1, (f"text {at}",)) for at in range(4, 8)
    ]
    assert {each.traceparent for each in (*entries, *single)} == {"00-1-2-01"}
    await answer(worker, single[1:2], fail=True)
    await answer(worker, [*single[:1], *single[2:], entries[0], entries[2]])
    job = await office.job(job_id)
    assert (job.status, job.done, job.failed) == ("done", 9, 1)
    assert await office.numbers(job) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert await office.numbers(job, 6, 9) == [6, 7, 8, 9]  # the last entry reaches beyond
    (failed,) = await jobs.failures(office.link, office.keys, job_id, 10)
    assert (failed.position, failed.n) == (5, 1)


async def test_entries_that_went_are_added_again(office: Office, worker: Worker, bulk_lane: Lane) -> None:
    """Somebody deleted the stream; the job goes on, and what was on its way counts once."""
    job_id = await office.made(12)
    entries = await claim(worker)
    await bulk_lane.client.delete(bulk_lane.name)
    await consumer.join(worker.link, worker.keys)
    await office.link.call("HDEL", office.keys.owed, "looked_ms")
    assert (await office.feed()).again == 3
    assert (await office.feed()).again == 0
    assert await answer(worker, entries) == [False] * 3
    await answer(worker, await claim(worker))
    job = await office.job(job_id)
    assert (job.status, await office.numbers(job)) == ("done", list(map(float, range(12))))


@pytest.mark.leaves_anything
async def test_counters_that_drifted_are_counted_anew(office: Office, bulk_lane: Lane) -> None:
    """A job was deleted by hand: it is in nobody's way."""
    job_id, left = await office.made(8), await office.made(8)
    await bulk_lane.client.delete(office.keys.job(job_id), f"{office.keys.job(job_id)}:fed")
    await office.link.call("HDEL", office.keys.owed, "looked_ms")
    await office.feed()
    assert await office.owed() == {"inputs": 8, "entries": 2, "tokens": 80}
    assert [each.job_id for each in await jobs.latest(office.link, office.keys, 10)] == [left]
    await bulk_lane.client.delete(bulk_lane.name, office.keys.backlog)


async def test_jobs_share_lanes_with_requests(office: Office, gateway: Gateway, worker: Worker) -> None:
    """Requests go first; a job may go there too, if it is asked for as interactive."""
    await office.made(4)
    fast = await office.made(4, lane=INTERACTIVE)
    await gateway.add(request(lane=BULK), request())
    entries = await claim(worker)
    assert [(each.ref.lane, each.job) for each in entries] == [
        (INTERACTIVE, True),
        (INTERACTIVE, False),
        (BULK, True),
        (BULK, False),
    ]
    assert entries[0].request_id == fast
    await answer(worker, entries)


async def test_a_worker_that_died_is_followed(office: Office, worker: Worker, other: Worker) -> None:
    """Entries of jobs are reclaimed as all are, and told as such."""
    job_id = await office.made(4)
    await claim(worker)
    search = Abandoned(0)
    claimed = await consumer.reclaim(other.link, other.keys, other.name, await other.now_ms(), search)
    assert claimed is not None
    assert [each.job for each in claimed.entries] == [True]
    await answer(other, claimed.entries)
    assert (await office.job(job_id)).status == "done"
