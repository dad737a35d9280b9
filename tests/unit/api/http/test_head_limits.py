"""Heads over their limits: refused, however they arrive, and heads within them are not."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.api.http.connection_under_test import HEAD, ConnectionUnderTest

MAX_BYTES, MAX_FIELDS, MAX_URL_BYTES = 2_048, 20, 512
LIMITS = {"max_head_bytes": MAX_BYTES, "max_head_fields": MAX_FIELDS, "max_url_bytes": MAX_URL_BYTES}
GET = b"GET %b HTTP/1.1\r\n"
CHUNKED = GET % b"/embed" + b"Transfer-Encoding: chunked\r\n\r\n"


def head_of(num_bytes: int, first: bytes = GET % b"/embed") -> bytes:
    """Returns a head with this number of bytes, in two fields."""
    rest = num_bytes - len(first) - len(b"a: \r\nb: \r\n\r\n")
    return first + b"a: " + b"x" * (rest // 2) + b"\r\nb: " + b"y" * (rest - rest // 2) + b"\r\n\r\n"


def fields(number: int) -> bytes:
    """Returns a number of short fields."""
    return b"".join(b"f%d: 1\r\n" % each for each in range(number))


def calls_after(*parts: bytes, answers: bool = True) -> list[bytes | str]:
    """Returns the calls of the transport of a connection that receives these parts."""

    async def receive() -> list[bytes | str]:
        async with ConnectionUnderTest(**LIMITS) as connection:
            if answers:
                connection.answers.set()
            for part in parts:
                connection.protocol.data_received(part)
                await asyncio.sleep(0)
            await connection.wait(0.01)
            return list(connection.transport.calls)

    return asyncio.run(receive())


def statuses(calls: list[bytes | str]) -> list[int]:
    """Returns the statuses of the answers among the calls of a transport."""
    return [int(each.split()[1]) for each in calls if isinstance(each, bytes)]


def pieces_of(data: bytes, size: int) -> list[bytes]:
    """Returns data in pieces of a size."""
    return [data[start : start + size] for start in range(0, len(data), size)]


REFUSED = {
    "a head with a byte too many": (head_of(MAX_BYTES + 1), 431),
    "a field without an end": (GET % b"/" + b"a: " + b"x" * MAX_BYTES, 431),
    "a name without an end": (GET % b"/" + b"x" * MAX_BYTES, 431),
    "empty lines": (b"\r\n" * MAX_BYTES, 431),
    "a field too many": (GET % b"/" + fields(MAX_FIELDS + 1) + b"\r\n", 431),
    "fields without an end": (GET % b"/" + fields(300), 431),
    "a URL with a byte too many": (GET % (b"/" + b"u" * MAX_URL_BYTES) + b"\r\n", 414),
    "a URL without an end": (b"GET /" + b"u" * (MAX_URL_BYTES + 100), 414),
    "a URL longer than a head": (b"GET /" + b"u" * (3 * MAX_BYTES), 414),
}


@pytest.mark.parametrize("size", [1, 7, 1_000, 100_000])
@pytest.mark.parametrize("name", REFUSED)
def test_a_head_over_a_limit_is_refused(name: str, size: int) -> None:
    """The answer is a 431 or a 414 in the schema of all errors, written once; the rest of the head is dropped."""
    data, status = REFUSED[name]
    calls = calls_after(*pieces_of(data, size))
    (answer,) = [each for each in calls if isinstance(each, bytes)]
    head, _, body = answer.partition(b"\r\n\r\n")
    assert statuses(calls) == [status]
    assert b"\r\nconnection: close" in head
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["error"]["code"] == {431: "head_too_large", 414: "url_too_long"}[status]
    assert calls.count("ended") == 1


ACCEPTED = {
    "a head of the maximum": head_of(MAX_BYTES),
    "fields of the maximum": GET % b"/embed" + fields(MAX_FIELDS) + b"\r\n",
    "a URL of the maximum": GET % (b"/" + b"u" * (MAX_URL_BYTES - 1)) + b"\r\n",
    "a body larger than a head": HEAD.replace(b"Length: 4", b"Length: 100000") + b"x" * 100_000,
    "chunks larger than a head": CHUNKED + (b"1000\r\n" + b"x" * 0x1000 + b"\r\n") * 5 + b"0\r\n\r\n",
    "many small chunks": CHUNKED + b"1\r\nx\r\n" * 3_000 + b"0\r\na: b\r\n\r\n",
}


@pytest.mark.parametrize("size", [1, 1_000, 1_000_000])
@pytest.mark.parametrize("name", ACCEPTED)
def test_a_head_within_its_limits_is_not_refused(name: str, size: int) -> None:
    """The limits are inclusive, and bound heads only."""
    assert statuses(calls_after(*pieces_of(ACCEPTED[name], size))) == [200]


@given(size=st.integers(1, 6_000))
def test_each_request_of_a_connection_may_have_the_maximum(size: int) -> None:
    """What came before on a connection does not count, whatever the network has joined or split."""
    body = HEAD.replace(b"Length: 4", b"Length: 3000") + b"x" * 3_000
    data = (head_of(MAX_BYTES) + body) * 2
    assert statuses(calls_after(*pieces_of(data, size))) == [200] * 4


@pytest.mark.parametrize("size", [1, 1_000, 1_000_000])
def test_a_trailer_has_the_limits_of_a_head(size: int) -> None:
    """A trailer without an end, of fields or of one value, is refused: that is the only answer to its request."""
    for trailer in (fields(300), b"a: " + b"x" * 3 * MAX_BYTES):
        data = CHUNKED + b"1\r\nx\r\n0\r\n" + trailer
        calls = calls_after(*pieces_of(data, size), answers=False)
        assert (statuses(calls), calls.count("ended")) == ([431], 1)


def test_a_refused_connection_is_freed_at_once() -> None:
    """When its client leaves, not when the time to read the refusal is over: strangers open thousands in that time."""

    async def left() -> object:
        connection = ConnectionUnderTest(**LIMITS)
        await connection.receive(b"GET /" + b"u" * 1_000)
        await connection.lose()
        transport = weakref.ref(connection.transport)
        del connection.transport, connection.protocol  # whose application is a method of the connection under test
        return transport()

    gc.disable()
    try:
        assert asyncio.run(left()) is None
    finally:
        gc.enable()


def test_a_client_that_goes_on_sending_is_cut_off() -> None:
    """After a refusal, a bounded amount is read, so that the client sees the answer."""
    refused = [b"GET /" + b"u" * 1_000]
    assert "aborted" not in calls_after(*refused, *[b"u" * 10_000] * 20)
    assert "aborted" in calls_after(*refused, *[b"u" * 10_000] * 40)
