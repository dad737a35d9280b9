"""One queue that a gateway serves: its shards, behind the cache if there is one, and its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from api import metrics
from api.dialects.input_types import prompt_of
from api.dialects.long_text import IN_CHUNKS
from api.dialects.parsing import CombinationError
from api.dialects.quantization import check_dimensions
from api.dialects.request import InferenceRequest, InferenceResult, Labels
from api.dispatch.chunked_inference import ChunkLimits, compute_in_chunks
from api.dispatch.dispatcher import Dispatcher
from api.dispatch.fleet import find_gone
from api.dispatch.monitor import Monitor
from api.dispatch.producer_spans import ProducerSpans
from api.dispatch.shard_choice import rendezvous_order
from api.dispatch.sharded_cache import ShardedVectorCache
from api.dispatch.shards import ShardedDispatcher
from api.dispatch.vector_cache import CachingDispatcher, VectorCache
from api.jobs.store import JobStore
from api.memory_budget import HeldMemory
from api.settings import GatewaySettings
from api.settings_groups import CacheSettings
from api.tenants import Tenant
from shared.cache import CacheBound
from shared.errors import InvalidRequestError, JobsFullError, NoWorkerError, RedisUnreachableError, UnavailableError
from shared.heartbeats import int8_ranges_of, label_names
from shared.messages import DENSE, EMBED, READY, Heartbeat, Options
from shared.model_names import canonical_model, public_model
from shared.process.tasks import cancel_and_wait
from shared.redis_errors import KeyMovedError, UnexpectedReplyError
from shared.usage_counts import UsageCounts

log = structlog.get_logger()

FULL_RETRY_S = 10.0
READY_POLL_S = 0.25
LOADED_POLLS = 2

ProducerSpansFactory = Callable[[str], ProducerSpans | None]
"""Returns the spans of a queue by its name; None if requests are not traced."""


def no_spans(_name: str) -> None:
    """Returns None: requests are not traced."""


class Shard:
    """One shard of a queue: all of it, if there is one Redis.

    Attributes:
        number: its place in the list of shards.
        queue: name of its queue.
        dispatcher: sends requests through it.
        job_store: reads its jobs.
    """

    def __init__(self, settings: GatewaySettings, queue: str, number: int, spans: ProducerSpans | None) -> None:
        self.number = number
        self.queue = queue
        self.dispatcher = Dispatcher(settings, queue, spans)
        if spans is not None:
            spans.client = self.dispatcher.gateway
        self.job_store = JobStore(self.dispatcher.connections)

    @property
    def monitor(self) -> Monitor:
        """The monitor of its Redis and workers."""
        return self.dispatcher.monitor

    async def stop(self) -> None:
        """Stops the background work and closes the connections."""
        await self.job_store.stop()
        await self.dispatcher.stop()

    def check_memory(self) -> None:
        """Raises JobsFullError: Redis uses more memory than `redis_memory_ratio` allows."""
        if self.dispatcher.is_low_on_memory:
            raise JobsFullError("Redis is low on memory: try again later.", retry_after_s=FULL_RETRY_S)


class ServedQueue:
    """One queue. With one Redis, its only shard answers the requests, and nothing is in between.

    Attributes:
        name: of the queue.
        shards: of the queue, by their numbers.
        usage_writer: writes what tenants have used of all queues.
        answer: returns the result of a request, from the cache or a dispatcher; raises as a dispatcher does.
    """

    def __init__(
        self, settings: GatewaySettings, name: str, usage: UsageCounts, spans_of: ProducerSpansFactory = no_spans
    ) -> None:
        self.name = name
        self._usage = usage
        self.shards = [Shard(each, name, number, spans_of(name)) for number, each in enumerate(settings.shards)]
        connections, job_store = self.shards[0].dispatcher.connections, self.shards[0].job_store
        self.usage_writer = connections.shared_connection("usage", instead=job_store.connection)
        self._monitors = [each.monitor for each in self.shards]
        for monitor in self._monitors if len(self._monitors) > 1 else ():
            monitor.join(self._monitors)
        self._worker_grace_s, self._max_inputs = settings.worker_grace_s, settings.requests.max_inputs
        dispatchers = [each.dispatcher for each in self.shards]
        self._sharded = ShardedDispatcher(dispatchers) if len(dispatchers) > 1 else None
        self._cached = self._with_cache(settings.cache, dispatchers) if settings.cache.max_bytes else None
        self.answer: Callable[[InferenceRequest, str, HeldMemory], Awaitable[InferenceResult]] = (
            self._cached or self._sharded or dispatchers[0]
        ).answer
        self._labels = "", Labels()
        self._tasks: list[asyncio.Task[None]] = []

    def _with_cache(self, settings: CacheSettings, dispatchers: Sequence[Dispatcher]) -> CachingDispatcher:
        bound = CacheBound(settings.max_bytes // len(dispatchers), int(settings.ttl_s * 1000))
        caches = [
            VectorCache(each.connections.connection("cache"), each.connections.keys, bound) for each in dispatchers
        ]
        is_sharded = len(caches) > 1
        return CachingDispatcher(
            self._sharded or dispatchers[0],
            self.workers,
            ShardedVectorCache(caches, lambda number: self._monitors[number].is_down) if is_sharded else caches[0],
            (self._sharded or dispatchers[0].charges).charge if settings.hits_count else None,
            per_tenant=settings.per_tenant,
            count_hits=self._count_hits,
        )

    def _count_hits(self, request: InferenceRequest, inputs: int, tokens: int) -> None:
        """Counts what the cache has answered of a request."""
        usage = self._usage.row(request.tenant.name, self.name, request.op)
        usage.inputs += inputs
        usage.cached_tokens += tokens

    async def start(self) -> None:
        """Reads the state of the queue once, then starts the background work."""
        if self._cached is not None:
            self._tasks.append(asyncio.create_task(self._cached.run()))
        await asyncio.gather(*(each.dispatcher.start() for each in self.shards))
        if self._sharded is not None:
            self._tasks.append(asyncio.create_task(self._sharded.run()))

    async def stop(self) -> None:
        """Stops the background work and closes the connections."""
        await cancel_and_wait(self._tasks)
        await asyncio.gather(*(each.stop() for each in self.shards))
        metrics.remove_queue(self.name)
        metrics.ERRORS.remove_by_labels({"queue": self.name})

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for an answer."""
        return sum(each.dispatcher.in_flight for each in self.shards)

    @property
    def models(self) -> frozenset[str]:
        """The model names of all workers seen since this gateway started."""
        if len(self._monitors) == 1:  # each request that names a model needs them
            return self._monitors[0].models
        return frozenset().union(*(each.models for each in self._monitors))

    @property
    def ops(self) -> frozenset[str]:
        """The operations that the last seen workers offer; empty if they are unknown."""
        if len(self._monitors) == 1:  # each request needs them
            return self._monitors[0].ops
        return frozenset().union(*(each.ops for each in self._monitors))

    async def find_ops(self, revision: str = "") -> frozenset[str]:
        """Returns the operations of the model with a revision; if it is gone or "", those that `ops` has."""
        workers = await self._find_loaded(revision) if revision or not self.ops else []
        return frozenset(op for each in workers for op in each.ops) or self.ops

    async def find_labels(self, revision: str = "") -> Labels:
        """Returns the labels of the model with a revision, as a worker reports them or last did.

        If that is gone or "", they are those of any worker; none if none has loaded the model.
        """
        of_revision, labels = self._labels
        if not labels.names or revision not in ("", of_revision) or self._loaded(revision):
            workers = await self._find_loaded(revision) or self._loaded()
            if found := next((each for each in workers if each.activation), None):
                self._labels = found.revision, Labels(label_names(found), found.activation)
        return self._labels[1]

    async def find_int8_ranges(self, result: InferenceResult) -> bytes:
        """Returns the ranges of the workers whose model has made these vectors; none if they have no file of ranges.

        Vectors of the cache name no revision: they are of the one that all ready workers have.

        Raises:
            UnavailableError: the workers that made the vectors are gone, and their ranges are not known.
        """
        if workers := await self._find_loaded(result.revision):
            return int8_ranges_of(workers[0])
        raise UnavailableError("The worker of these vectors is gone, with its ranges of int8: send the request again.")

    async def _find_loaded(self, revision: str) -> list[Heartbeat]:
        """Returns what `_loaded` does; if there are none, it asks Redis again.

        The first answers of a worker come before the gateway has seen that it is ready.
        """
        for _ in range(LOADED_POLLS):  # a poll that was under way may have been too early
            if workers := self._loaded(revision):
                return workers
            await self._poll_all()
        return self._loaded(revision)

    def _loaded(self, revision: str = "") -> list[Heartbeat]:
        """Returns the workers that have loaded a model of vectors or scores: that of a revision, or any if it is ""."""
        return [each for each in self.workers() if each.dim and revision in ("", each.revision)]

    async def _poll_all(self) -> None:
        await asyncio.gather(*(each.poll() for each in self._monitors))

    def missing(self) -> list[str]:
        """Returns what prevents answers on all shards: redis, or worker; an empty list if any shard can answer."""
        missing = [each.dispatcher.missing() for each in self.shards]
        return missing[0] if all(missing) else []

    def alive(self) -> bool:
        """Whether the event loop still runs."""
        return self._monitors[0].alive()

    def workers(self) -> tuple[Heartbeat, ...]:
        """Returns the live workers, as of the last poll of each shard; a worker may serve several."""
        if len(self._monitors) == 1:
            return self._monitors[0].workers()
        answering: Sequence[Monitor] = [each for each in self._monitors if not each.is_down] or self._monitors
        return tuple({worker.worker: worker for each in answering for worker in each.workers()}.values())

    async def may_have_jobs(self) -> bool:
        """Whether any job has not ended or has results, or may, while a Redis is away; what cannot be read has none."""
        for shard in self.shards:
            try:
                if await shard.job_store.has_jobs():
                    return True
            except (KeyMovedError, UnexpectedReplyError) as error:
                log.warning("the jobs of a queue cannot be read", queue=self.name, reason=error.log_message)
            except RedisUnreachableError:
                return True
        return False

    def shard_for_job(self, tenant: Tenant, idempotency_key: str) -> Shard:
        """Returns the shard for a new job. With an idempotency key it is always the same, even if that is away."""
        if self._sharded is None:
            return self.shards[0]
        if idempotency_key:
            return self.shards[rendezvous_order(tenant.name or idempotency_key, len(self.shards))[0]]
        return self.shards[self._sharded.choose(tenant)]

    async def answer_by_model(self, request: InferenceRequest, request_id: str, memory: HeldMemory) -> InferenceResult:
        """Returns the result of a request that `needs_model`: its prompts, its maximum length, or its ranges of int8.

        Waits for a worker that has loaded the model, within the time of the request.

        Raises:
            InvalidRequestError: the model has no prompt for the input type, or the client names a prompt too; or
                vectors are to be cut, and the ranges are for whole ones.
            NoWorkerError: no worker is ready in time.
            RedbatchError: as `answer` and `chunked_inference.compute_in_chunks` do.
        """
        loop = asyncio.get_running_loop()
        start = loop.time()
        workers = await self._ready_workers(request.timeout_ms / 1000)
        waited_ms = int((loop.time() - start) * 1000)
        if request.revision:
            workers = [each for each in workers if each.revision == request.revision] or workers
        if request.op == EMBED or DENSE in request.parts:
            for each in workers:
                check_dimensions(request.output_types, request.options.dimensions, int8_ranges_of(each))
        options = _with_prompt(request.options, request.input_type, workers)
        request = request._replace(options=options, timeout_ms=max(1, request.timeout_ms - waited_ms))
        if request.long_text not in IN_CHUNKS:
            return await self.answer(request, request_id, memory)
        limits = ChunkLimits(max(each.max_input_tokens for each in workers), self._max_inputs)
        normalizes = any(each.normalizes for each in workers)
        return await compute_in_chunks(self.answer, request, limits, memory, normalizes=normalizes)

    async def with_prompt(self, options: Options, input_type: str | None) -> Options:
        """Returns the options of a job with the prompt for its input type; raises as `answer_by_model` does."""
        return options if input_type is None else _with_prompt(options, input_type, await self._ready_workers())

    async def _ready_workers(self, wait_s: float = 0.0) -> list[Heartbeat]:
        """Returns the workers that have loaded the model; waits for one. Raises NoWorkerError: none has in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while True:
            if ready := [each for each in self.workers() if each.state == READY]:
                return ready
            await asyncio.gather(*(each.poll() for each in self._monitors))
            if ready := [each for each in self.workers() if each.state == READY]:
                return ready
            if loop.time() >= until or not self.is_staffed():
                raise NoWorkerError("No worker is ready, so the model is not known yet: try again.")
            await asyncio.sleep(min(READY_POLL_S, until - loop.time()))

    def check_options(self, options: Options) -> None:
        """Raises InvalidRequestError: the model has no such prompt, or fewer dimensions.

        Until all workers report theirs, any may do.
        """
        dims = [each.dim for each in self.workers()]
        if dims and all(dims) and options.dimensions is not None and options.dimensions > max(dims):
            raise InvalidRequestError(f"dimensions: the vectors of this model have {max(dims)}.")
        name, reported = options.prompt_name, [each.prompts for each in self.workers()]
        known = {prompt for prompts in reported for prompt in prompts or ()}
        if not name or not reported or None in reported or name in known:
            return
        raise InvalidRequestError(
            f"prompt_name: this model has no such prompt; it has {', '.join(sorted(known)) or 'none'}."
        )

    def check_revision(self, revision: str) -> None:
        """Raises RevisionGoneError: a request is pinned to a revision that no worker has."""
        if revision and (gone := find_gone(revision, self.workers())) is not None:
            raise gone

    def serves(self, model: str) -> bool:
        """Whether its workers use this name for their model; while there is no worker, whether earlier workers did."""
        names = {each.model for each in self.workers()} or self.models
        return canonical_model(model) in {
            canonical_model(each) for name in names for each in (name, public_model(name))
        }

    def is_staffed(self) -> bool:
        """Whether a worker has been alive within the grace time, so that requests are accepted."""
        unseen = [each.worker_unseen_s() for each in self._monitors]
        return any(each is not None and each <= self._worker_grace_s for each in unseen)


def _with_prompt(options: Options, input_type: str | None, workers: Sequence[Heartbeat]) -> Options:
    """Returns options with the prompt that these workers' model has for what texts are for."""
    if input_type is None:
        return options
    if options.prompt_name is not None:
        message = "prompt_name: send it, or an input_type (task), but not both."
        raise CombinationError(message, param="prompt_name")
    if all(each.prompts is None for each in workers):  # too many for a heartbeat: the worker knows the names
        return options._replace(prompt_name=input_type)
    prompts = {name for each in workers for name in each.prompts or ()}
    filled = prompts - {name for each in workers for name in each.empty_prompts}
    return options._replace(prompt_name=prompt_of(input_type, prompts, filled))
