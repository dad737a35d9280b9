"""The queues of one gateway: its own, and with `all_queues` each that workers announce: a model has one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from api import metrics
from api.dialects.request import Asked
from api.dispatch.cache import cached_of
from api.dispatch.dispatcher import Answered, Dispatcher
from api.jobs.store import Desk
from api.settings import GatewaySettings
from shared.process.tasks import end
from shared import producer
from shared.errors import JobsFull, ModelNotFound, NoWorker, RedisUnreachable
from shared.messages import Heartbeat
from shared.connection import Link
from shared.settings import queue_slug
from shared.producer import MOST_QUEUES

if TYPE_CHECKING:
    from api.tracing import Sends

log = structlog.get_logger()

EVERY_S = 1.0
RETRY_S = 60.0
"""When to try again what could not be served."""

MISSED = 60
"""So many looks in a row that do not find a queue announced any more let it go: requests that name its model get 404
then, not 503. It is told of for ten minutes after the last time (delivery.QUEUES_TTL_MS)."""

NO_WORKER_RETRY_S = 1.0
FULL_RETRY_S = 10.0

SendsOf = Callable[[str], "Sends | None"]
"""Returns what makes the spans of a queue of that name; None if requests are not traced."""


def untraced(_name: str) -> None:
    """Returns nothing that makes spans."""


class ServedQueue:
    """One queue: its dispatcher, with the cache before it, if there is one.

    Attributes:
        answer: returns what comes of a request; raises as the dispatcher does.
        desk: knows its jobs.
    """

    def __init__(self, settings: GatewaySettings, name: str, sends: Sends | None = None) -> None:
        self.name = name
        self.dispatcher = Dispatcher(settings, name, sends)
        if sends is not None:
            sends.client = self.dispatcher.gateway
        self.desk = Desk(self.dispatcher.queue)
        self._most_memory = settings.redis_memory_ratio
        self._cached = cached_of(settings, self.dispatcher)
        self.answer: Callable[[Asked, str], Awaitable[Answered]] = (self._cached or self.dispatcher).answer
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Asks for the state of the queue once, then works in the background."""
        if self._cached is not None:
            self._tasks.append(asyncio.create_task(self._cached.run()))
        await self.dispatcher.start()

    async def stop(self) -> None:
        """Stops the background work and closes the connections."""
        await end(self._tasks)
        await self.desk.stop()
        await self.dispatcher.stop()
        metrics.forget(self.name)
        metrics.ERRORS.remove_by_labels({"queue": self.name})

    def workers(self) -> tuple[Heartbeat, ...]:
        """Returns the live workers, as last seen."""
        return self.dispatcher.monitor.workers()

    def check_memory(self) -> None:
        """Raises JobsFull: Redis has no room for jobs."""
        if self.dispatcher.monitor.cluster().memory_ratio > self._most_memory:
            raise JobsFull("Redis runs out of memory: try again later.", retry_after_s=FULL_RETRY_S)

    def serves(self, model: str) -> bool:
        """Whether its workers call their model so; or, while there is none, did so before."""
        names = {each.model for each in self.workers()} or self.dispatcher.monitor.models
        return model in names


class Queues:
    """Finds the queue of a model.

    Args:
        settings: of the gateway.
        link: a connection of its own.
        sends_of: makes spans, if requests are traced.
    """

    def __init__(self, settings: GatewaySettings, link: Link, sends_of: SendsOf = untraced) -> None:
        self._settings = settings
        self._link = link
        self._sends_of = sends_of
        self._own = ServedQueue(settings, settings.queue, sends_of(settings.queue))
        self._served = {settings.queue: self._own}
        self._missed: dict[str, int] = {}
        self._unusable: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begins to serve its own queue, and those that are announced."""
        metrics.IN_FLIGHT.set_function(lambda: self.in_flight)
        await self._own.start()
        if self._settings.all_queues:
            with suppress(Exception):  # which the next look tells
                await self._look()
            self._tasks.append(asyncio.create_task(self._keep_looking()))

    async def stop(self) -> None:
        """Stops all of them."""
        await end(self._tasks)
        await asyncio.gather(*(each.stop() for each in self._served.values()))

    @property
    def in_flight(self) -> int:
        """Requests that wait for an answer."""
        return sum(each.dispatcher.in_flight for each in self._served.values())

    def live(self) -> list[ServedQueue]:
        """Returns those that live workers serve, its own first."""
        return [each for each in self._served.values() if each.workers()]

    def named(self, model: str | None) -> ServedQueue:
        """Returns the queue of a model: by its own name, or as its workers call the model. None is for its own queue.

        Raises:
            ModelNotFound: there is none.
            NoWorker: no worker has been seen yet that could have said what its model is.
        """
        if model is None:
            return self._own
        found = self._served.get(model)
        if found is not None:
            return found
        serving = [each for each in self._served.values() if each.serves(model)]
        if serving:
            return max(serving, key=lambda each: bool(each.workers()))  # of equals the first
        if queue_slug(model) == self._own.name and not self._own.dispatcher.monitor.models:
            return self._own
        if not any(each.dispatcher.monitor.models for each in self._served.values()):
            raise NoWorker("No worker has been seen yet: start one, then try again.", retry_after_s=NO_WORKER_RETRY_S)
        names = ", ".join(each.name for each in self.live()) or "none at the moment"
        raise ModelNotFound(f"There is no such model here. Served: {names}.", param="model")

    def of_name(self, name: str) -> ServedQueue | None:
        """Returns the queue of that very name; None if it is not served."""
        return self._served.get(name)

    def missing(self) -> list[str]:
        """Returns what keeps this gateway from answering: redis; or a worker, of any model."""
        told = [each.dispatcher.missing() for each in self._served.values()]
        return told[0] if all(told) else []

    def alive(self) -> bool:
        """Whether the process works at all."""
        return self._own.dispatcher.monitor.alive()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._look()
            except Exception:
                log.exception("cannot look after the queues")

    async def _look(self) -> None:
        """Takes up what is announced, and lets go of what is no more."""
        try:
            names = await producer.queues(self._link)
        except RedisUnreachable:  # the monitors say so
            return
        now = time.monotonic()
        self._unusable = {name: at for name, at in self._unusable.items() if now - at < RETRY_S}
        for name in names:
            if name not in self._served and name not in self._unusable and len(self._served) < MOST_QUEUES:
                await self._take_up(name)
        for name, queue in list(self._served.items()):
            self._missed[name] = 0 if name in names else self._missed.get(name, 0) + 1
            unused = queue is not self._own and not queue.dispatcher.in_flight
            if self._missed[name] > MISSED and unused and not await queue.desk.has_jobs():
                del self._served[name], self._missed[name]
                log.info("a queue is gone", queue=name)
                await queue.stop()

    async def _take_up(self, name: str) -> None:
        queue = ServedQueue(self._settings, name, self._sends_of(name))
        try:
            await queue.start()
        except Exception:  # its keys may be forbidden to this gateway
            log.exception("cannot serve this queue", queue=name)
            self._unusable[name] = time.monotonic()
            await queue.stop()
        else:
            self._served[name] = queue
            log.info("serves another queue", queue=name)
