"""The queues of one gateway: its own and, with `all_queues`, every queue that workers announce. Each model has one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import structlog

from api import metrics
from api.any_shard import first_answer
from api.dialects.input_types import split_suffix
from api.dialects.parts import parts_of_ops
from api.dialects.request import InferenceRequest
from api.served_queue import ProducerSpansFactory, ServedQueue, no_spans
from api.settings import GatewaySettings
from shared import producer
from shared.connection import RedisConnection
from shared.errors import (
    InvalidRequestError,
    ModelNotFoundError,
    NoWorkerError,
    RedisUnreachableError,
    UnsupportedOperationError,
)
from shared.messages import EMBED, EMBED_ALL, EMBED_PARTS, EMBED_SPARSE, OPS, ROUTES, Heartbeat
from shared.model_names import public_model, queue_slug
from shared.process.tasks import cancel_and_wait
from shared.producer import MAX_QUEUES
from shared.redis_errors import KeyMovedError, UnexpectedReplyError
from shared.redis_url import one_per_keyspace
from shared.usage_counts import UsageCounts

log = structlog.get_logger()

DISCOVERY_INTERVAL_S = 1.0
UNUSABLE_RETRY_S = 60.0
"""Time until a queue that could not be served is tried again."""

MAX_MISSED_POLLS = 60
"""A queue is dropped once more polls than this in a row have not found it announced.

Requests that name its model then get 404, not 503. A queue stays announced for ten minutes after the last announcement
(consumer.QUEUES_TTL_MS), unless its only worker has ended without loading the model.
"""

NO_WORKER_RETRY_S = 1.0


class Queues:
    """Finds the queue of a model.

    Args:
        settings: of the gateway.
        connections: to the Redis of each shard.
        usage: counts what tenants use of the gateway.
        spans_of: returns the spans of a queue, if requests are traced.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        connections: Sequence[RedisConnection],
        usage: UsageCounts,
        spans_of: ProducerSpansFactory = no_spans,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._listing = one_per_keyspace(settings.shard_urls, connections)
        self._usage, self._spans_of = usage, spans_of
        name = settings.initial_queue
        self._own = ServedQueue(settings, name, usage, spans_of)
        self._served = {name: self._own}
        self._ambiguous: list[str] = []
        self._missed: dict[str, int] = {}
        self._unusable: dict[str, float] = {}
        self._can_list = True
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Starts to serve the gateway's own queue and, with `all_queues`, those that are announced."""
        metrics.IN_FLIGHT.set_function(lambda: self.in_flight)
        await self._own.start()
        if self._settings.all_queues:
            with suppress(Exception):  # the next poll logs it
                await self._poll()
            self._tasks.append(asyncio.create_task(self._keep_polling()))

    async def stop(self) -> None:
        """Stops all queues."""
        await cancel_and_wait(self._tasks)
        await asyncio.gather(*(each.stop() for each in self._served.values()))

    @property
    def usage_writer(self) -> RedisConnection:
        """The connection to the Redis that has what tenants have used of all queues: that of the own queue's shard 0.

        With one Redis it keeps to the home of that queue: what it writes does not get to an unrelated one.
        """
        return self._own.usage_writer

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for an answer, over all queues."""
        return sum(each.in_flight for each in self._served.values())

    @property
    def names(self) -> list[str]:
        """The names of the queues that it serves, sorted."""
        return sorted(self._served)

    def live(self) -> list[ServedQueue]:
        """Returns the queues that live workers serve, the gateway's own first."""
        return [each for each in self._served.values() if each.workers()]

    def workers(self) -> list[tuple[str, Heartbeat]]:
        """Returns the live workers of all queues that it serves, with the queue of each."""
        return [(queue.name, worker) for queue in self._served.values() for worker in queue.workers()]

    def of_model(self, model: str | None) -> ServedQueue:
        """Returns the queue of a model, by the queue's name or its workers' name for the model; None: the own queue.

        Raises:
            InvalidRequestError: the model is None, and there are several.
            ModelNotFoundError: no queue serves the model.
            NoWorkerError: no worker has been seen yet, so the names of models are unknown.
        """
        if model is None:
            if self._ambiguous:
                names = ", ".join(self._ambiguous)
                raise InvalidRequestError(f"Name a model: this cluster serves {names}.", param="model")
            return self._own
        by_name = self._served.get(model.lower())  # names of queues are in lower case
        if by_name is None and "/" not in model:
            by_name = self._served.get(queue_slug(model))
        if by_name is not None and by_name.models:
            return by_name
        serving = [each for each in self._served.values() if each.serves(model)]
        if serving:
            return max(serving, key=lambda each: bool(each.workers()))  # the first of equals
        if by_name is not None:
            return by_name
        if queue_slug(model) == self._own.name and not self._own.models:
            return self._own
        if not any(each.models for each in self._served.values()):
            raise NoWorkerError(
                "No worker has been seen yet: start one, then try again.", retry_after_s=NO_WORKER_RETRY_S
            )
        names = ", ".join(map(_names_of, self.live())) or "none at the moment"
        raise ModelNotFoundError(f"There is no such model here. Served: {names}.", param="model")

    def without_suffix(self, model: str | None, input_type: str | None) -> tuple[str | None, str | None]:
        """Returns the name of a model without the suffix of an input type, and that; only if none has the whole name.

        Raises:
            InvalidRequestError: the client sends an input type too.
            NoWorkerError: as `of_model` does.
        """
        split = None if model is None else split_suffix(model)
        if split is None:
            return model, input_type
        try:
            self.of_model(model)
        except ModelNotFoundError:
            self.of_model(split[0])
        else:
            return model, input_type
        if input_type is not None:
            message = "input_type: the end of the model's name says it: leave one of them out."
            raise InvalidRequestError(message, param="input_type")
        return split

    def with_input_type(self, request: InferenceRequest) -> InferenceRequest:
        """Returns a request for vectors with the input type that its model's name ends with.

        Raises RedbatchError: as `without_suffix` does.
        """
        if request.model is None or request.op not in (EMBED, EMBED_ALL, EMBED_SPARSE, EMBED_PARTS):
            return request
        model, input_type = self.without_suffix(request.model, request.input_type)
        return request if model == request.model else request._replace(model=model, input_type=input_type)

    def check_op(
        self,
        queue: ServedQueue,
        op: str,
        forms: Mapping[str, str] = ROUTES,
        *,
        returns_parts: bool = False,
        has_cosines: bool = False,
    ) -> None:
        """Raises UnsupportedOperationError: the workers of a queue, or its last ones, do not offer an operation.

        The error names what this one offers, and the queues that offer the operation; if there are none, the `forms`
        of what it offers: how to send a request. If the request names parts of a text's embedding, it names the parts.
        A request that `has_cosines` is also for queues whose model makes embeddings: these score by them.
        """
        ops = queue.ops
        if not ops or op in ops:
            return
        refusal = f"The model of queue {queue.name} does not offer {op}"
        offered = ", ".join(each for each in OPS if each in ops)
        able = {op, EMBED} if has_cosines else {op}
        others = ", ".join(each.name for each in self.live() if not able.isdisjoint(each.ops))
        if others:
            advice = "Name one in the field `model`, or in the header X-Model."
            message = f"{refusal}; these do: {others}. {advice} {queue.name} offers: {offered}."
            raise UnsupportedOperationError.of(op, message, tuple(ops))
        if returns_parts:
            names = ", ".join(parts_of_ops(ops)) or "none of these"
            message = f"return: the model of queue {queue.name} returns {names}."
            raise UnsupportedOperationError.of(op, message)
        routes = ", or ".join(form for each, form in forms.items() if each in ops)
        message = f"{refusal}. It offers: {offered}. Send the request to {routes}."
        raise UnsupportedOperationError.of(op, message, tuple(ops))

    def serves(self, model: str) -> bool:
        """Whether the workers of any queue have this name for their model."""
        return any(each.serves(model) for each in self._served.values())

    def offers(self, op: str) -> bool:
        """Whether the model of any queue offers an operation."""
        return any(op in each.ops for each in self._served.values())

    def of_name(self, name: str) -> ServedQueue | None:
        """Returns the queue with exactly this name; None if it is not served."""
        return self._served.get(name)

    def missing(self) -> list[str]:
        """Returns what prevents answers on every queue: redis, or worker; an empty list if any queue can answer."""
        missing = [each.missing() for each in self._served.values()]
        return missing[0] if all(missing) else []

    def alive(self) -> bool:
        """Whether the event loop still runs."""
        return self._own.alive()

    async def _keep_polling(self) -> None:
        while True:
            await asyncio.sleep(DISCOVERY_INTERVAL_S)
            try:
                await self._poll()
            except RedisUnreachableError as error:
                log.debug("cannot update the served queues", reason=error.log_message)
            except Exception:
                log.exception("cannot update the served queues")

    async def _poll(self) -> None:
        """Starts to serve queues that are announced, and drops those that are not any more.

        Raises RedisUnreachableError, after which all stays as it is; the monitors log it.
        """
        try:
            names = await self._list_names()
        except (KeyMovedError, UnexpectedReplyError) as error:  # of a key that all queues share
            if self._can_list:
                log.warning("the list of queues cannot be read: others are not found", reason=error.log_message)
            self._can_list = False
            return
        self._can_list = True
        now = time.monotonic()
        self._unusable = {name: at for name, at in self._unusable.items() if now - at < UNUSABLE_RETRY_S}
        for name in names:
            if name not in self._served and name not in self._unusable and len(self._served) < MAX_QUEUES:
                await self._add(name)
        for name, queue in list(self._served.items()):
            self._missed[name] = 0 if name in names else self._missed.get(name, 0) + 1
            unused = queue is not self._own and not queue.in_flight
            if self._missed[name] > MAX_MISSED_POLLS and unused and not await queue.may_have_jobs():
                del self._served[name], self._missed[name]
                log.info("queue dropped", queue=name)
                await queue.stop()
        self._choose_own()

    async def _list_names(self) -> list[str]:
        """Returns the queues that are announced on any shard. Raises RedisUnreachableError: none answers."""
        lists = await asyncio.gather(*map(_list_queues, self._listing), return_exceptions=True)
        answered = [each for each in lists if isinstance(each, list)]
        for each in lists:
            if isinstance(each, BaseException) and not (answered and isinstance(each, RedisUnreachableError)):
                raise each
        return list(dict.fromkeys(name for each in answered for name in each))

    def _choose_own(self) -> None:
        """Makes the only queue that workers serve the own one, unless a setting names it.

        All gateways decide alike, because the time of the last heartbeat is in Redis. A queue without live workers
        counts until its grace time is over: the requests of a model must not go to another while its workers restart.
        """
        if self._settings.queue is not None:
            return
        staffed = [each for each in self._served.values() if each.is_staffed()]
        self._ambiguous = sorted(each.name for each in staffed) if len(staffed) > 1 else []
        if len(staffed) == 1 and staffed[0] is not self._own:
            self._own = staffed[0]
            log.info("requests that name no model go to the only queue", queue=self._own.name)

    async def _add(self, name: str) -> None:
        """Starts to serve a queue. Raises RedisUnreachableError."""
        try:
            await first_answer(producer.queue_stats(each, each.keys_of(name)) for each in self._connections)
        except (KeyMovedError, UnexpectedReplyError) as error:  # Redis may forbid its keys to this gateway
            log.warning("cannot serve queue", queue=name, reason=error.log_message)
            self._unusable[name] = time.monotonic()
            return
        queue = ServedQueue(self._settings, name, self._usage, self._spans_of)
        try:
            await queue.start()
        except BaseException:
            await queue.stop()
            raise
        self._served[name] = queue
        log.info("queue added", queue=name)


async def _list_queues(connection: RedisConnection) -> list[str]:
    await connection.check_home()
    return await producer.list_queues(connection)


def _names_of(queue: ServedQueue) -> str:
    """Returns the names by which clients may call the model of a queue: the queue's, and those of its workers."""
    others = {public_model(each.model) for each in queue.workers()} - {queue.name}
    return f"{queue.name} ({', '.join(sorted(others))})" if others else queue.name
