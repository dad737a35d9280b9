"""Where a request ends: never two answers to one, no answer before one that is due, and no request in a body."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.api.http.connection_under_test import HEAD, ConnectionUnderTest

GET = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST /embed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
UPGRADE = HEAD.replace(b"Host: x\r\n", b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n")
ENDLESS = b"0\r\na: " + b"v" * 2_000


def calls_after(*parts: bytes, answers: bool) -> tuple[list[int], bool]:
    """Returns the statuses that a connection has written after these parts, and whether it was closed."""

    async def receive() -> list[bytes | str]:
        async with ConnectionUnderTest(max_head_bytes=1_024) as connection:
            if answers:
                connection.answers.set()
            await connection.receive(*parts)
            return list(connection.transport.calls)

    calls = asyncio.run(receive())
    written = [each for each in calls if isinstance(each, bytes)]
    return [int(each.split()[1]) for each in written], not {"closed", "aborted", "ended"}.isdisjoint(calls)


@pytest.mark.parametrize(
    "invalid",
    [
        b"\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nA : b\r\n\r\n",
        CHUNKED + b"zz\r\n",
        b"GET / HTTP/1.1\r\na: " + b"v" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200,
        b"GET /" + b"u" * 10_000,
        CHUNKED + b"0\r\n" + b"a: b\r\n" * 200,
    ],
    ids=["bytes", "field", "chunk", "large head", "fields", "URL", "trailer"],
)
@pytest.mark.parametrize("is_unsent", [False, True])
async def test_an_answer_that_is_due_comes_before_the_end(invalid: bytes, *, is_unsent: bool) -> None:
    """After it the connection is closed, without an error that a client would take for the answer."""
    async with ConnectionUnderTest() as connection:
        await connection.receive(HEAD + b"body" + HEAD + b"body" + invalid, b"more" * 50_000)
        assert connection.transport.calls.count("closed") == 0
        connection.transport.blocks = is_unsent
        connection.answers.set()
        await connection.wait()
        if is_unsent:
            assert "closed" not in connection.transport.calls
            connection.transport.send_all()
            await connection.wait()
        written = [each for each in connection.transport.calls if isinstance(each, bytes)]
        assert [each.split()[1] for each in written] == [b"200", b"200"]
        assert [b"connection: close" in each for each in written] == [False, True]
        assert "closed" in connection.transport.calls


@pytest.mark.parametrize("invalid", [b"\x00\r\n\r\n", b"GET http://x:99999/ HTTP/1.1\r\n\r\n"])
def test_bytes_that_are_no_request_get_an_error(invalid: bytes) -> None:
    """If no answer is due."""
    assert calls_after(invalid, answers=True) == ([400], True)
    assert calls_after(HEAD + b"body", invalid, answers=True) == ([200, 400], True)


@pytest.mark.parametrize("end", [b"zz\r\n", b"2\r\nabcd", ENDLESS], ids=["no size", "no end", "a trailer without end"])
def test_a_request_that_is_answered_gets_no_error_for_the_rest_of_its_body(end: bytes) -> None:
    """A client would take it for the answer to its next request."""
    assert calls_after(CHUNKED, end, answers=True) == ([200], True)


def test_a_malformed_body_is_refused_once() -> None:
    """Nothing else answers its request."""
    assert calls_after(CHUNKED, b"zz\r\n", answers=False) == ([400], True)


async def test_fields_of_a_trailer_are_no_headers() -> None:
    """What a proxy checks in the head, such as a key, cannot be in the trailer (RFC 9110, 6.5.1)."""
    async with ConnectionUnderTest() as connection:
        await connection.receive(CHUNKED + b"2\r\nab\r\n0\r\nAuthorization: Bearer x\r\nExpect: 100-continue\r\n\r\n")
        assert dict(connection.protocol.headers) == {b"host": b"x", b"transfer-encoding": b"chunked"}
        assert not connection.protocol.expect_100_continue


async def test_whitespace_around_a_value_is_no_part_of_it() -> None:
    """Spaces and tabs (RFC 9110, 5.5): an id with a tab behind it is that id."""
    async with ConnectionUnderTest() as connection:
        await connection.receive(CHUNKED.replace(b"Host: x", b"Host: \tx\t\r\nA:b \tc \t \r\nD: \t"))
        expected = {b"host": b"x", b"a": b"b \tc", b"d": b"", b"transfer-encoding": b"chunked"}
        assert dict(connection.protocol.headers) == expected


@pytest.mark.parametrize("size", [1, 40, 1_000])
@pytest.mark.parametrize("body", [b"body", GET[:4]])
def test_a_request_for_another_protocol_is_served_in_this_one(size: int, body: bytes) -> None:
    """Java's client asks for HTTP/2 in each first request. Its body is a body, and the next request is served, too."""
    data = UPGRADE + body + GET
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    assert calls_after(*parts, answers=True) == ([200, 200], False)


def test_no_tunnel_is_opened() -> None:
    """What follows CONNECT would be no HTTP."""
    assert calls_after(b"CONNECT /x HTTP/1.1\r\nHost: x\r\n\r\n" + GET, answers=True) == ([400], True)
