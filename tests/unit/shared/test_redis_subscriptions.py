"""Subscriptions to sentinels, over connections that break, are silent, or are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from redis.exceptions import NoPermissionError
from structlog.testing import capture_logs

from shared import redis_subscriptions
from shared.process.tasks import cancel_and_wait
from shared.redis_subscriptions import SentinelSubscriptions
from shared.redis_url import Address, parse_url
from shared.tls import Tls
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio

URL = parse_url("redis+sentinel://a,b/mymaster/0")
SUBSCRIBED = [b"subscribe", b"+switch-master", 1]
REFUSED = NoPermissionError("this user has no permissions to run the 'subscribe' command")
RESET = RuntimeError("unable to perform operation on a closed transport")  # of uvloop


def announcement(host: str) -> list[bytes]:
    """Returns the message that a sentinel sends when the master moves to a host."""
    return [b"message", b"+switch-master", f"mymaster old 1 {host} 2".encode()]


class Sentinel:
    """Connections to one sentinel, of which each reads some replies, and then nothing.

    None stands for a time without a message.
    """

    def __init__(self, *replies: Iterable[object]) -> None:
        self._replies = [iter(each) for each in replies]
        self.commands: list[str] = []
        self.num_opened = self.num_closed = 0

    async def connect(self) -> None:
        """Opens the next connection."""
        self.num_opened += 1

    async def send_command(self, *words: str) -> None:
        """Records a command."""
        self.commands.append(" ".join(words))

    async def read_response(self, timeout: float) -> object:  # noqa: ASYNC109 - as redis-py's
        """Returns the next reply, or raises it."""
        assert timeout == redis_subscriptions.PING_AFTER_S
        replies = self._replies[min(self.num_opened, len(self._replies)) - 1]
        reply = next(replies, Ellipsis)
        if reply is Ellipsis:
            await asyncio.Event().wait()
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def disconnect(self, *, nowait: bool) -> None:
        """Closes the connection."""
        assert nowait
        self.num_closed += 1


async def subscribe(monkeypatch: pytest.MonkeyPatch, first: Sentinel, until_opened: int) -> list[Address]:
    """Subscribes until a number of connections to the first sentinel were opened; returns the announced addresses."""
    monkeypatch.setattr(redis_subscriptions, "RETRY_S", 0.0)
    sentinels, found = {"a": first, "b": Sentinel([SUBSCRIBED])}, list[Address]()
    subscriptions = SentinelSubscriptions(URL, lambda node: cast("Any", sentinels[node.host]), Tls("", "", ""))
    running = asyncio.create_task(subscriptions.run(found.append))
    await wait_until(lambda: first.num_opened == until_opened, "the connections are opened")
    await asyncio.sleep(0.01)
    await cancel_and_wait([running])
    assert all(each.num_closed == each.num_opened for each in sentinels.values())
    return found


async def test_each_announcement_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies to SUBSCRIBE and PING are none."""
    sentinel = Sentinel([SUBSCRIBED, announcement("c"), [b"pong", b""], announcement("d")])
    assert await subscribe(monkeypatch, sentinel, 1) == [Address("c", 2), Address("d", 2)]
    assert sentinel.commands == ["SUBSCRIBE +switch-master"]


@pytest.mark.parametrize("error", [OSError("reset"), RESET])
async def test_a_connection_that_breaks_is_opened_again(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Other sentinels are not affected."""
    sentinel = Sentinel([SUBSCRIBED, error], [SUBSCRIBED, announcement("c")])
    assert await subscribe(monkeypatch, sentinel, 2) == [Address("c", 2)]


async def test_a_silent_connection_is_kept_while_pings_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announcements are rare. One on which not even a PING is answered leads nowhere."""
    sentinel = Sentinel([SUBSCRIBED, None, [b"pong", b""], None, None], [SUBSCRIBED, announcement("c")])
    assert await subscribe(monkeypatch, sentinel, 2) == [Address("c", 2)]
    assert sentinel.commands == ["SUBSCRIBE +switch-master", *["PING"] * 3, "SUBSCRIBE +switch-master"]


async def test_a_refusal_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of a sentinel may have no permission: the log says what that means."""
    with capture_logs() as logs:
        await subscribe(monkeypatch, Sentinel([REFUSED], [REFUSED], [SUBSCRIBED]), 3)
    assert [(each["log_level"], each["sentinel"], each["reason"]) for each in logs] == [
        ("warning", "a:26379", str(REFUSED))
    ]
