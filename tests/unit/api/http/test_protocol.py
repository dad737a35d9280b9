"""What GatewayProtocol adds to uvicorn's: answers in one write, and detection of clients that have left."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
import weakref
from collections.abc import Callable

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from api.http.coalescing_transport import CoalescingTransport
from api.http.protocol import MAX_PIPELINED
from api.http.unanswered_requests import UnansweredRequests
from api.http.unsent_limiter import UnsentLimiter
from api.settings import GatewaySettings
from tests.unit.api.http.connection_under_test import HEAD, ConnectionUnderTest, RecordingTransport
from tests.waiting import wait_until


async def write_twice(then: Callable[[CoalescingTransport], None]) -> tuple[list[bytes | str], list[bytes | str]]:
    """Writes twice and calls `then`; returns the calls made by then, and by the end of the event loop's iteration."""
    transport = RecordingTransport()
    unsent = UnsentLimiter(GatewaySettings().unsent_limits)
    coalescing = CoalescingTransport(
        transport, asyncio.get_running_loop(), FlowControl(transport), unsent, UnansweredRequests()
    )
    coalescing.write(b"head, ")
    coalescing.write(b"body")
    then(coalescing)
    at_once = list(transport.calls)
    await asyncio.sleep(0)
    return at_once, transport.calls


@pytest.mark.parametrize(
    ("then", "at_once", "by_end"),
    [
        (lambda _: None, [], [b"head, body"]),
        (CoalescingTransport.flush, [b"head, body"], [b"head, body"]),
        (CoalescingTransport.close, [b"head, body", "closed"], [b"head, body", "closed"]),
    ],
    ids=["nothing more", "flush", "close"],
)
def test_writes_of_one_iteration_are_joined(
    then: Callable[[CoalescingTransport], None], at_once: list[bytes | str], by_end: list[bytes | str]
) -> None:
    """Writes are joined until the iteration ends, a flush, or a close; nothing is sent twice or lost."""
    assert asyncio.run(write_twice(then)) == (at_once, by_end)


def test_an_answer_is_one_write() -> None:
    """Head and body of an answer are one write: each write is a packet, and one more read by the client."""

    async def transport_calls() -> list[bytes | str]:
        async with ConnectionUnderTest() as connection:
            connection.answers.set()
            await connection.receive(HEAD + b"body", HEAD + b"body")
            return list(connection.transport.calls)

    answers = [each for each in asyncio.run(transport_calls()) if isinstance(each, bytes)]
    assert len(answers) == 2
    assert all(each.startswith(b"HTTP/1.1 200") and each.endswith(b"\r\n\r\nok") for each in answers)


@pytest.mark.parametrize(("parts", "body_complete"), [((HEAD + b"body",), True), ((HEAD, b"body"), False)])
def test_a_request_knows_whether_its_body_has_arrived(parts: tuple[bytes, ...], *, body_complete: bool) -> None:
    """COMPLETE_BODY is set only if the body arrived with the head; other requests must bound their wait for it."""

    async def recorded() -> list[bool]:
        async with ConnectionUnderTest() as connection:
            await connection.receive(*parts)
            return connection.body_complete

    assert asyncio.run(recorded()) == [body_complete]


@pytest.mark.parametrize("error", [None, ConnectionResetError()], ids=["closed", "reset"])
@pytest.mark.parametrize("waiting", [1, 2])
def test_a_request_ends_when_its_client_leaves(waiting: int, error: Exception | None) -> None:
    """A request is cancelled when its client leaves; one that waits behind it never starts; nothing is written."""

    async def outcomes() -> tuple[list[str], list[bytes | str]]:
        async with ConnectionUnderTest() as connection:
            await connection.receive(*[HEAD + b"body"] * waiting)
            await connection.lose(error)
            return list(connection.outcomes), [each for each in connection.transport.calls if isinstance(each, bytes)]

    assert asyncio.run(outcomes()) == (["left"], [])


def test_an_answered_request_is_not_cancelled_later() -> None:
    """When the client leaves after an answer, only the next request's task is cancelled."""

    async def outcomes() -> list[str]:
        async with ConnectionUnderTest() as connection:
            connection.answers.set()
            await connection.receive(HEAD + b"body")
            connection.answers.clear()
            await connection.receive(HEAD + b"body")
            await connection.lose()
            return list(connection.outcomes)

    assert asyncio.run(outcomes()) == ["answered", "left"]


def test_pending_writes_are_dropped_when_a_client_leaves() -> None:
    """Pending data is dropped, because uvloop's transport raises an error for a write after its end."""

    async def transport_calls() -> list[bytes | str]:
        async with ConnectionUnderTest() as connection:
            connection.protocol.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await connection.lose(ConnectionResetError())
            return list(connection.transport.calls)

    assert asyncio.run(transport_calls()) == []


@pytest.mark.parametrize(("size", "last"), [(10, None), (200_000, "resumed")])
def test_reading_goes_on_while_a_request_waits(size: int, last: str | None) -> None:
    """Reading resumes after a long body, to detect a client that leaves: uvicorn stops at 64 KiB until it is read."""

    async def transport_calls() -> list[bytes | str]:
        async with ConnectionUnderTest() as connection:
            head = HEAD.replace(b"Length: 4", b"Length: %d" % size)
            await connection.receive(head + b"x" * (size // 2), b"x" * (size - size // 2))
            return list(connection.transport.calls)

    found = asyncio.run(transport_calls())
    assert (found[-1] if found else None) == last


def test_reading_pauses_while_two_requests_wait() -> None:
    """While one request is handled, a second waits, and reading pauses: a client cannot fill the memory."""

    async def transport_calls() -> tuple[list[bytes | str], int]:
        async with ConnectionUnderTest() as connection:
            await connection.receive(*[HEAD + b"body"] * 3)
            return list(connection.transport.calls), len(connection.clients)

    assert asyncio.run(transport_calls()) == (["paused", "resumed", "paused"], 1)


GET = b"GET / HTTP/1.1\r\n\r\n"
READ_BYTES = 256_000
"""What uvloop reads at a time."""


@pytest.mark.parametrize("sent", [GET, HEAD + b"body"], ids=["GET", "POST"])
def test_one_read_brings_few_requests(sent: bytes) -> None:
    """A read full of requests is not parsed to its end: the connection is closed, and no request is left in memory."""

    async def found() -> tuple[list[bytes | str], int]:
        async with ConnectionUnderTest() as connection:
            connection.protocol.data_received((sent * READ_BYTES)[:READ_BYTES])
            return list(connection.transport.calls), len(connection.protocol.pipeline)

    calls, num_waiting = asyncio.run(found())
    assert num_waiting <= MAX_PIPELINED
    assert "aborted" in calls
    assert not any(isinstance(each, bytes) for each in calls)


def test_a_few_pipelined_requests_are_answered() -> None:
    """The maximum is answered, also again and again."""

    async def num_answers() -> int:
        async with ConnectionUnderTest() as connection:
            connection.answers.set()
            for _ in range(3):
                await connection.receive(GET * (MAX_PIPELINED + 1))
            return b"".join(each for each in connection.transport.calls if isinstance(each, bytes)).count(b" 200 OK")

    assert asyncio.run(num_answers()) == 3 * (MAX_PIPELINED + 1)


def test_an_answered_request_is_not_kept() -> None:
    """Neither its head nor the body that came with it: an idle connection would keep them for keep_alive_s."""

    async def num_bytes_kept() -> int:
        async with ConnectionUnderTest() as connection:
            connection.answers.set()
            head = b"GET / HTTP/1.1\r\nContent-Length: 200000\r\na: %b\r\n\r\n" % (b"x" * 30_000)
            tracemalloc.start()
            await connection.receive(head + b"b" * 200_000)
            del head
            kept, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return kept

    assert asyncio.run(num_bytes_kept()) < 20_000


@pytest.mark.parametrize("request_bytes", [GET, HEAD + b"body"], ids=["GET", "POST"])
def test_requests_that_never_began_are_freed_at_once(request_bytes: bytes) -> None:
    """A client that leaves behind pipelined requests leaves no reference cycle, which would stay in memory for long."""

    async def left() -> list[object]:
        connection = ConnectionUnderTest()
        await connection.receive(request_bytes * 3)
        waiting: list[weakref.ref[object]] = [weakref.ref(cycle) for cycle, _ in connection.protocol.pipeline]
        assert len(waiting) == 2
        await connection.lose()
        protocol = weakref.ref(connection.protocol)
        del connection.protocol  # whose application is a method of the connection under test
        return [protocol(), *(each() for each in waiting)]

    gc.disable()
    try:
        assert asyncio.run(left()) == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("parts", [(b"b" * 99, b"b"), (b"b" * 100,)], ids=["in two reads", "in one"])
async def test_a_body_that_comes_after_its_answer_ends_the_wait_for_it(parts: tuple[bytes, ...]) -> None:
    """The connection is then idle: it stays open for keep_alive_s, and not for head_timeout_s."""
    async with ConnectionUnderTest(head_timeout_s=0.5, keep_alive_s=1) as connection:
        connection.answers.set()
        began = time.monotonic()
        await connection.receive(b"GET / HTTP/1.1\r\nContent-Length: 100\r\n\r\n", *parts)
        await wait_until(connection.transport.is_closing, "the connection is closed")
        assert time.monotonic() - began >= 1
        assert connection.transport.calls[-1] == "closed"


async def test_a_request_behind_a_late_body_has_its_time() -> None:
    """The timer of an idle connection does not run during a request that came in one read with the end of that body."""
    async with ConnectionUnderTest(keep_alive_s=1) as connection:
        connection.answers.set()
        await connection.receive(b"GET / HTTP/1.1\r\nContent-Length: 100\r\n\r\n", b"b" * 99)
        connection.answers.clear()
        await connection.receive(b"b" + GET)
        await asyncio.sleep(1.2)
        assert "closed" not in connection.transport.calls


@pytest.mark.parametrize("first", [GET, HEAD + b"body"], ids=["GET", "POST"])
@pytest.mark.parametrize("answered", [False, True])
async def test_half_a_head_behind_a_request_is_counted_and_timed(first: bytes, *, answered: bool) -> None:
    """It counts at once, all of it, and its time begins with the answer to the request before it."""
    half = b"GET / HTTP/1.1\r\na: " + b"x" * 50_000
    async with ConnectionUnderTest(head_timeout_s=0.6) as connection:
        if answered:
            connection.answers.set()
        await connection.receive(first + half)
        assert len(half) <= connection.num_head_bytes <= len(first + half) + 100
        await connection.receive(b"x" * 10_000)
        assert len(half) + 10_000 <= connection.num_head_bytes
        await connection.wait(0.8)
        assert ("aborted" in connection.transport.calls) == answered


async def test_a_large_head_counts_until_its_request_is_answered() -> None:
    """Also if it comes in one read, with a body; a body counts only behind another request, and no small head does."""
    head = b"POST / HTTP/1.1\r\nContent-Length: 20000\r\na: %b\r\n\r\n"
    async with ConnectionUnderTest() as connection:
        await connection.receive(head % (b"x" * 30_000) + b"b" * 20_000)
        assert 30_000 < connection.num_head_bytes < 30_100
        await connection.receive(head % (b"x" * 20_000), b"b" * 20_000)
        assert 70_000 < connection.num_head_bytes < 71_000
        connection.answers.set()
        await connection.receive(b"")
        assert connection.num_head_bytes == 0
        connection.answers.clear()
        await connection.receive(head % b"x" + b"b" * 20_000)
        assert connection.num_head_bytes < 100


def test_no_request_begins_while_an_answer_is_unsent() -> None:
    """Until an answer is sent, the next request that has arrived does not begin, and no further one is read."""

    async def numbers() -> tuple[list[int], list[bytes | str], list[bytes | str]]:
        async with ConnectionUnderTest() as connection:
            connection.answers.set()
            connection.transport.blocks = True
            begun = []
            await connection.receive((HEAD + b"body") * 2)
            begun.append(len(connection.clients))
            held = list(connection.transport.calls)
            connection.transport.send_all()
            await connection.wait(0.01)
            begun.append(len(connection.clients))
            return begun, held, connection.transport.calls[len(held) :]

    begun, held, after = asyncio.run(numbers())
    assert begun == [1, 2]
    assert [each for each in held if isinstance(each, str)] == ["paused", "resumed", "paused"]
    assert after[0] == "resumed"
    assert [each for each in after if isinstance(each, bytes)] == [each for each in held if isinstance(each, bytes)]


@pytest.mark.parametrize(
    ("settings", "after_s"),
    [({"max_connection_unsent_bytes": 2**16}, 0.0), ({"send_timeout_s": 0.1}, 0.1)],
    ids=["bytes", "time"],
)
def test_a_connection_whose_client_does_not_read_is_aborted(settings: dict[str, float], after_s: float) -> None:
    """A connection with too many unsent bytes is closed at once, one whose client receives nothing after the time."""

    async def aborted() -> list[bool]:
        async with ConnectionUnderTest(**settings) as connection:
            connection.transport.blocks = True
            found = []
            for size, wait_s in ((2**16, 0.0), (1, after_s * 2)):
                connection.protocol.transport.write(b"x" * size)
                await asyncio.sleep(wait_s)
                found.append("aborted" in connection.transport.calls)
            return found

    assert asyncio.run(aborted()) == [False, True]


@pytest.mark.parametrize("is_sent", [False, True])
async def test_a_connection_gives_way_while_its_answer_is_unsent(*, is_sent: bool) -> None:
    """It may be closed for a new one. Once the answer is sent, the request behind it begins, and it may not be."""
    async with ConnectionUnderTest(max_connections=1, max_address_ratio=1) as connection:
        connection.answers.set()
        connection.transport.blocks = True
        await connection.receive((HEAD + b"body") * 2)
        if is_sent:
            connection.answers.clear()
            connection.transport.send_all()
            await connection.wait(0.01)
        connection.protocol._limiter.admit(RecordingTransport(), "", lambda: None)
        assert ("aborted" in connection.transport.calls) != is_sent
