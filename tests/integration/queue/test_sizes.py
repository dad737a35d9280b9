"""The bound of the queue in bytes, and the bytes of one claim: they concern entries with a size, of functions."""

from __future__ import annotations

import pytest

from shared import producer
from shared.codec import encode_binary, encode_body
from shared.consumer import MAX_CLAIM_BYTES
from shared.keys import BULK, INTERACTIVE
from shared.messages import BYTES, PREDICT, Body, NewEntry
from shared.producer import QueueBound, Submission
from tests.integration.queue.actors import BOUND, BUDGET_MS, Gateway, Worker, request
from tests.integration.queue.conftest import Lane

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]

MEBIBYTE = 2**20


def sized(request_id: str, size: int, *, entries: int = 1, lane: int = INTERACTIVE) -> Submission:
    """Returns a request of a function with entries of this many bytes, each of cost 1."""
    body = encode_body(Body(PREDICT, (encode_binary(BYTES, bytes(size)),)))
    new_entries = tuple(NewEntry(i, 1, 1, body, size) for i in range(entries))
    return Submission(request_id, new_entries, BUDGET_MS, lane)


async def num_bytes(gateway: Gateway) -> int:
    """Returns the bytes in the queue, as Redis counts them."""
    return (await producer.queue_stats(gateway.connection, gateway.keys)).bytes


async def test_the_bound_in_bytes_is_exact(gateway: Gateway, worker: Worker) -> None:
    """A request that would exceed it is refused as a whole; bulk may fill half; texts do not count."""
    bound = QueueBound(BOUND, bytes=1_000)
    requests = [
        *(sized("a" * 32, 300), sized("b" * 32, 201, lane=BULK), sized("c" * 32, 200, lane=BULK)),
        *(sized("d" * 32, 167, entries=3), sized("e" * 32, 250, entries=2), sized("f" * 32, 1), request()),
    ]
    reply = await producer.submit(gateway.connection, gateway.keys, "g", 1, bound, requests)
    assert [each.status for each in reply.outcomes] == ["ok", "full", "ok", "full", "ok", "full", "ok"]
    assert await num_bytes(gateway) == 1_000
    again = await producer.submit(gateway.connection, gateway.keys, "g", 2, bound, [sized("9" * 32, 1), request()])
    assert [each.status for each in again.outcomes] == ["full", "ok"]
    await worker.commit(await worker.claim())


async def test_answers_and_cancels_free_the_bytes(gateway: Gateway, worker: Worker, lane: Lane) -> None:
    """A claimed entry has its size, so that commit and cancel subtract what submit has added."""
    refs = await gateway.add(sized("a" * 32, 300), sized("b" * 32, 500), sized("c" * 32, 70))
    first, *others = await worker.claim()
    assert [first.ref, *(each.ref for each in others)] == refs
    assert [ref.counted_bytes for ref in refs] == [300, 500, 70]
    assert (await lane.fields())[0][b"size"] == b"300"
    await worker.commit([first])
    assert await num_bytes(gateway) == 570
    assert await producer.cancel(gateway.connection, gateway.keys, refs[1:2], []) == 1
    assert await num_bytes(gateway) == 70
    await worker.commit(others)
    assert await num_bytes(gateway) == 0


async def test_a_claim_is_bounded_in_bytes(gateway: Gateway, worker: Worker) -> None:
    """One claim delivers about MAX_CLAIM_BYTES of large entries; the next delivers more."""
    number = MAX_CLAIM_BYTES // (4 * MEBIBYTE)
    await gateway.add(*(sized(f"{i:032x}", 4 * MEBIBYTE) for i in range(2 * number)))
    first = await worker.claim()
    assert len(first) == number
    second = await worker.claim(held=len(first))
    assert len(second) == number
    await worker.commit((*first, *second))


async def test_a_small_entry_says_nothing_about_the_next(gateway: Gateway, worker: Worker) -> None:
    """The bound in bytes also holds if a small entry with a size is before large ones."""
    number = MAX_CLAIM_BYTES // (8 * MEBIBYTE)
    await gateway.add(sized("f" * 32, 1), *(sized(f"{i:032x}", 8 * MEBIBYTE) for i in range(2 * number)))
    first = await worker.claim()
    assert len(first) == 1 + number
    second = await worker.claim(held=len(first))
    await worker.commit((*first, *second))


async def test_a_reclaim_is_bounded_in_bytes(gateway: Gateway, worker: Worker, other: Worker) -> None:
    """What a dead worker held is taken over in several calls; a worker finds its own entries in several pages."""
    number = MAX_CLAIM_BYTES // (4 * MEBIBYTE)
    await gateway.add(*(sized(f"{i:032x}", 4 * MEBIBYTE) for i in range(2 * number)))
    for _ in range(2):
        await worker.claim()
    pages = await worker.read_own_entries()
    assert [len(page.entries) for page in pages] == [number, number]
    taken = await other.reclaim()
    assert len(taken) == number
    rest = await other.reclaim(owner=worker.name)
    assert len(rest) == number
    await other.commit((*taken, *rest))
