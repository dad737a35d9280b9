"""What comes behind an answer that is written and not sent: it may be dropped, and the answer never is."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from shared.process.limited_log import LimitedLog
from tests.unit.api.http.connection_under_test import HEAD, ConnectionUnderTest, RecordingTransport

REQUEST = HEAD + b"body"
HALF_HEAD = b"GET /next HTTP/1.1\r\nHost: x\r\na: " + b"x" * 30_000
HALF_BODY = HEAD.replace(b"Length: 4", b"Length: 300000") + b"x" * 250_000
CHUNKED = HEAD.replace(b"Content-Length: 4", b"Transfer-Encoding: chunked")
HALF_TRAILER = CHUNKED + b"%x\r\n%b\r\n0\r\na: " % (60_000, b"b" * 60_000) + b"x" * 50_000


def statuses(connection: ConnectionUnderTest) -> list[int]:
    """Returns the statuses that a connection has written."""
    return [int(each.split()[1]) for each in connection.transport.calls if isinstance(each, bytes)]


def ends(connection: ConnectionUnderTest) -> list[str]:
    """Returns how a connection was ended."""
    return [each for each in connection.transport.calls if each in {"closed", "aborted", "ended"}]


def fill_heads(connection: ConnectionUnderTest) -> None:
    """Unfinished heads of many clients, each smaller than this connection's, leave no room for that (of 1 MiB)."""
    limiter = connection.protocol._limiter
    for number in range(41):
        other = limiter.admit(RecordingTransport(), f"10.0.0.{number}", lambda: None)
        assert limiter.update_head(other, 25_000)


async def answer_unread(connection: ConnectionUnderTest, *behind: bytes) -> None:
    """Answers a request that has others behind it; nothing of the answer is sent."""
    await connection.receive(b"".join([REQUEST, *behind]))
    connection.transport.blocks = True
    connection.answers.set()
    await connection.wait()
    assert statuses(connection) == [200]


async def drop_unanswered(behind: bytes, *, is_full: bool) -> None:
    """Lets heads of others take the room of what is behind an answer, and checks that nothing else is lost."""
    async with ConnectionUnderTest() as connection:
        if is_full:
            fill_heads(connection)
        await answer_unread(connection, behind)
        if not is_full:
            assert ends(connection) == []
            fill_heads(connection)
        assert (statuses(connection), ends(connection)) == ([200], ["closed"])
        assert connection.num_head_bytes == 0


@pytest.mark.parametrize("behind", [HALF_HEAD, HALF_TRAILER], ids=["head", "trailer"])
@pytest.mark.parametrize("is_full", [False, True], ids=["later", "at once"])
async def test_what_must_go_behind_an_unsent_answer_costs_no_answer(
    behind: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    """Half a head or a trailer is dropped for heads of others: the connection ends once its answer is sent, unaborted.

    The refusal, which would seem the answer to the next request, is neither written nor counted. A line
    is logged that has no status.
    """
    count = {"queue": "", "code": "too_many_heads"}
    before = REGISTRY.get_sample_value("redbatch_errors_total", count) or 0
    monkeypatch.setattr("api.http.early_error.limited_log", LimitedLog())  # which has written no such line yet
    with capture_logs() as logs:
        await drop_unanswered(behind, is_full=is_full)
    assert [(each["event"], each["code"], each.get("status")) for each in logs] == [
        ("request dropped", "too_many_heads", None)
    ]
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []
    assert (REGISTRY.get_sample_value("redbatch_errors_total", count) or 0) == before


async def test_a_whole_request_behind_an_unsent_answer_stays() -> None:
    """If the head behind it is dropped, it is answered, and then the connection is closed."""
    async with ConnectionUnderTest() as connection:
        await answer_unread(connection, REQUEST, HALF_HEAD)
        fill_heads(connection)
        assert ends(connection) == []
        connection.transport.send_all()
        await connection.wait()
        assert (statuses(connection), ends(connection)) == ([200, 200], ["closed"])


async def test_a_body_behind_an_unsent_answer_is_no_unfinished_head() -> None:
    """It counts among the heads of all requests, and is neither dropped nor limited in time while nothing is read."""
    async with ConnectionUnderTest(head_timeout_s=0.1) as connection:
        await answer_unread(connection, HALF_BODY)
        fill_heads(connection)
        assert connection.num_head_bytes > 250_000
        await connection.wait(0.3)
        assert ends(connection) == []
        connection.transport.send_all()
        await connection.receive(b"x" * 50_000)
        assert (statuses(connection), ends(connection)) == ([200, 200], [])


async def test_half_a_head_behind_an_unsent_answer_has_its_time_once_that_is_sent() -> None:
    """Until then it cannot arrive."""
    async with ConnectionUnderTest(head_timeout_s=0.1) as connection:
        await answer_unread(connection, HALF_HEAD)
        await connection.wait(0.3)
        assert ends(connection) == []
        connection.transport.send_all()
        await connection.wait(0.3)
        assert ends(connection) == ["aborted"]


async def test_bytes_that_are_no_request_cost_no_unsent_answer() -> None:
    """They get no 400, and the connection ends once the answer is sent."""
    async with ConnectionUnderTest() as connection:
        await answer_unread(connection)
        await connection.receive(b"\x00\r\n\r\n")
        assert (statuses(connection), ends(connection)) == ([200], ["closed"])


async def test_a_request_that_is_dropped_behind_an_unsent_answer_is_freed_at_once() -> None:
    """With its body, and without a reference cycle."""
    gc.disable()
    try:
        async with ConnectionUnderTest() as connection:
            await answer_unread(connection, HALF_TRAILER)
            dropped = weakref.ref(connection.protocol.cycle)
            fill_heads(connection)
            assert dropped() is None
    finally:
        gc.enable()
