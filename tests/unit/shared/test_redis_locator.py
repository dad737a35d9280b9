"""Where to connect to, when servers say something else while the question is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from shared.redis_locator import ClusterLocator, SentinelLocator
from shared.redis_url import Address, parse_url

pytestmark = pytest.mark.asyncio

OLD, NEW = Address("old", 1), Address("new", 2)
NODE = Address("s", 3)


class Survey:
    """Servers of which the first answer is the old address, and comes once something else was said."""

    def __init__(self, encode: Callable[[Address], list[Any]]) -> None:
        self._encode = encode
        self.may_answer = asyncio.Event()
        self.num_questions = 0

    async def ask(self, *_: object) -> dict[Address, list[Any]]:
        """Returns the old address, and then always the new one."""
        self.num_questions += 1
        address = OLD if self.num_questions == 1 else NEW
        await self.may_answer.wait()
        return {NODE: self._encode(address)}


async def test_an_answer_from_before_an_announcement_is_not_used() -> None:
    """The question was under way when a sentinel announced another master, so it is repeated."""

    def encode(address: Address) -> list[Any]:
        return [[address.host.encode(), b"%d" % address.port], [b"config-epoch", b"1"]]

    survey, subscriptions = Survey(encode), SwitchAtOnce()
    url = parse_url("redis+sentinel://s/mymaster/0")
    locator = SentinelLocator(url, cast("Any", survey), cast("Any", subscriptions))
    locating = asyncio.create_task(locator.locate())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    heard: list[Address] = []
    await locator.follow(heard.append)
    survey.may_answer.set()
    assert (await locating, survey.num_questions, heard) == (NEW, 2, [NEW])


class SwitchAtOnce:
    """A subscription that announces the new master, and ends."""

    async def run(self, on_switch: Callable[[Address], None]) -> None:
        """Announces it."""
        on_switch(NEW)


async def test_the_server_that_another_names_meanwhile_is_used() -> None:
    """MOVED is newer than the answer to a question that was sent before; no further question is sent."""
    survey = Survey(lambda address: [[[0, 16_383, [address.host.encode(), address.port]]]])
    locator = ClusterLocator(parse_url("redis+cluster://s"), 0, cast("Any", survey))
    locating = asyncio.create_task(locator.locate())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert locator.redirect(f"MOVED 0 {NEW}", OLD)
    survey.may_answer.set()
    assert (await locating, survey.num_questions) == (NEW, 1)
