"""Finds the server to connect to: the one in the URL, the master of sentinels, or the one that has a slot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from math import inf
from typing import Any, Protocol

from shared.errors import RedisUnreachableError
from shared.redis_subscriptions import SentinelSubscriptions
from shared.redis_survey import Survey
from shared.redis_topology import (
    SLOTS_QUESTION,
    master_questions,
    moved_to,
    newest_master,
    owner_of_slot,
    parse_slots,
)
from shared.redis_url import Address, RedisUrl

FRESH_S = 0.25
"""An answer is used for all connections that are made within this time."""

MAX_QUERIED = 5
"""Number of servers of a Redis Cluster that are queried at once; of sentinels, all are."""


class Locator(Protocol):
    """Finds the server to connect to."""

    watches: bool
    """Whether the server may change without an error at old connections, so that it has to be looked up regularly."""

    async def locate(self) -> Address | None:
        """Returns where to connect to; None: where the URL says. Raises RedisUnreachableError: no server knows."""

    def redirect(self, reply: str, queried: Address) -> bool:
        """Notes the error reply of a server; returns whether the server has said that another one has the slot."""

    def forget(self) -> None:
        """Has the next `locate` ask again: there was no connection to the server."""

    async def follow(self, on_switch: Callable[[Address], None]) -> None:
        """Calls `on_switch` when another server is said to be the one to connect to; until cancelled."""

    async def close(self) -> None:
        """Closes the connections over which it asks."""


class FixedLocator:
    """The server in the URL."""

    watches = False

    async def locate(self) -> Address | None:
        """Returns None."""
        return None

    def redirect(self, reply: str, queried: Address) -> bool:  # noqa: ARG002 - as of a Locator
        """Returns False: no other server is known."""
        return False

    def forget(self) -> None:
        """Does nothing."""

    async def follow(self, on_switch: Callable[[Address], None]) -> None:  # noqa: ARG002 - as of a Locator
        """Waits until cancelled."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Does nothing."""


class _LastAnswer:
    """An address that is looked for once at a time, and at most once within FRESH_S, for all who want to know it."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, Address]]) -> None:
        self._ask = ask
        self._task: asyncio.Task[Address] | None = None
        self._address: Address | None = None
        self._fresh_until = -inf
        self._version = 0

    async def get(self) -> Address:
        """Returns the address. Raises RedisUnreachableError: no server answers. If cancelled, the question goes on."""
        if (address := self._fresh_address()) is not None:
            return address
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._find(), name="locate Redis")
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # its caller may be gone
        return await asyncio.shield(self._task)

    async def _find(self) -> Address:
        version = self._version
        address = await self._ask()
        if version == self._version:
            self.set(address)
            return address
        # Another server was named meanwhile, or is to be looked for again: this answer may be too old.
        return self._fresh_address() or await self._ask()

    def _fresh_address(self) -> Address | None:
        return self._address if asyncio.get_running_loop().time() < self._fresh_until else None

    def set(self, address: Address) -> None:
        """Sets the address, as a server has named it."""
        self._version += 1
        self._address, self._fresh_until = address, asyncio.get_running_loop().time() + FRESH_S

    def forget(self) -> None:
        """Has it looked for again the next time."""
        self._version += 1
        self._fresh_until = -inf

    async def stop(self) -> None:
        """Ends the question under way, if there is one."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


class SentinelLocator:
    """The master that sentinels name. All are queried at once: one may be away, or know an older master.

    Args:
        url: with the sentinels and the master's name.
        survey: over which they are queried.
        subscriptions: to their announcements.
    """

    watches = True

    def __init__(self, url: RedisUrl, survey: Survey, subscriptions: SentinelSubscriptions) -> None:
        self._url = url
        self._survey = survey
        self._subscriptions = subscriptions
        self._answer = _LastAnswer(self._ask)

    async def locate(self) -> Address | None:
        """Returns the address of the master. Raises RedisUnreachableError: no sentinel knows it."""
        return await self._answer.get()

    async def _ask(self) -> Address:
        replies = await self._survey.ask(self._url.nodes, master_questions(self._url.master))
        if (master := newest_master(replies.values())) is None:
            raise RedisUnreachableError(f"The sentinels do not say where {self._url.master} is: try again.")
        return master

    def redirect(self, reply: str, queried: Address) -> bool:  # noqa: ARG002 - as of a Locator
        """Returns False: this is no Redis Cluster."""
        return False

    def forget(self) -> None:
        """Has the next `locate` ask again."""
        self._answer.forget()

    async def follow(self, on_switch: Callable[[Address], None]) -> None:
        """Calls `on_switch` with the address that a sentinel announces; the next `locate` asks all of them."""

        def handle(address: Address) -> None:
            self._answer.forget()
            on_switch(address)

        await self._subscriptions.run(handle)

    async def close(self) -> None:
        """Closes the connections over which it asks."""
        await self._answer.stop()
        await self._survey.close()


class ClusterLocator:
    """The server of a Redis Cluster that has the slot of the queue's keys.

    Args:
        url: with servers of the cluster, of which one has to answer; the others are found.
        slot: of the keys.
        survey: over which servers are queried.
    """

    watches = False

    def __init__(self, url: RedisUrl, slot: int, survey: Survey) -> None:
        self._seeds = url.nodes
        self._known: tuple[Address, ...] = ()
        self._slot = slot
        self._survey = survey
        self._answer = _LastAnswer(self._ask)

    async def locate(self) -> Address | None:
        """Returns the address of the server that has the slot. Raises RedisUnreachableError: no server knows it."""
        return await self._answer.get()

    async def _ask(self) -> Address:
        nodes = sorted({*self._seeds, *self._known})
        replies = await self._survey.ask(random.sample(nodes, min(len(nodes), MAX_QUERIED)), [SLOTS_QUESTION])
        answers = []
        for node, (reply,) in replies.items():
            with suppress(ValueError):  # something else than a Redis Cluster
                answers.append(parse_slots(reply, node))
        self._known = tuple({address for ranges in answers for _, _, address in ranges}) or self._known
        if (owner := owner_of_slot(answers, self._slot)) is None:
            raise RedisUnreachableError(f"No server of the Redis Cluster has slot {self._slot}: try again.")
        return owner

    def redirect(self, reply: str, queried: Address) -> bool:
        """Notes that another server has the slot, if the reply says so, and returns whether it does."""
        if (address := moved_to(reply, queried)) is None:
            return False
        self._answer.set(address)
        return True

    def forget(self) -> None:
        """Has the next `locate` ask again."""
        self._answer.forget()

    async def follow(self, on_switch: Callable[[Address], None]) -> None:  # noqa: ARG002 - as of a Locator
        """Waits until cancelled: a server that has lost the slot says so itself."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Closes the connections to the servers that are queried."""
        await self._answer.stop()
        await self._survey.close()
