"""Returns cached vectors, and has the others computed.

Lookups of the same moment share one call. The cache is optional: if it is slow or out of reach, all vectors are
computed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from api import metrics
from api.dialects.request import InferenceRequest, InferenceResult
from api.dispatch.admission import memory_full_error
from api.dispatch.dispatcher import Dispatcher
from api.dispatch.shards import ShardedDispatcher
from api.memory_budget import HeldMemory
from shared import cache
from shared.cache import CacheBound, CachedVector, cache_key
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.messages import READY, VECTOR_OPS, Failure, Heartbeat, Options, Reply, Vectors
from shared.process.unexpected_replies import record_failing_call

log = structlog.get_logger()

LOOKUP_TIMEOUT_S = 0.1
"""Maximum wait for a lookup: a model takes about as long to compute the vectors."""

PAUSE_S = 0.5
"""For this time after a failure of Redis, all vectors are computed."""

MAX_KEYS_PER_CALL = 512
MAX_PENDING_BYTES = 4 * 2**20
"""Maximum bytes of vectors that wait to be stored, or those of one request; those of further ones are not stored."""

CacheResults = list[CachedVector | None]


class Charge(Protocol):
    """Charges the tenant of a request: see Charges.charge."""

    async def __call__(self, request: InferenceRequest, tokens: int, *, may_refuse: bool) -> None:
        """Charges it. Raises RedbatchError: its quota does not allow the tokens, and the answer `may_refuse`."""


def _count_nothing(_request: InferenceRequest, _inputs: int, _tokens: int) -> None:
    """Counts nothing."""


class VectorCache:
    """The vectors that the gateways of a queue share.

    Args:
        connection: used only by the cache.
        keys: Redis keys of the queue.
        bound: maximum size of the cache, and how long a vector is kept.
    """

    def __init__(self, connection: RedisConnection, keys: Keys, bound: CacheBound) -> None:
        self._connection = connection
        self._keys = keys
        self._bound = bound
        self._lookups: list[tuple[Sequence[bytes], asyncio.Future[CacheResults]]] = []
        self._pending: dict[bytes, CachedVector] = {}
        self._pending_bytes = 0  # since it was empty
        self._wake = asyncio.Event()
        self._now_ms = 0

    async def find(self, cache_keys: Sequence[bytes]) -> CacheResults:
        """Returns the vector under each key, or None; None for all if Redis takes longer than LOOKUP_TIMEOUT_S."""
        results: asyncio.Future[CacheResults] = asyncio.get_running_loop().create_future()
        self._lookups.append((cache_keys, results))
        self._wake.set()
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                return await results
        except TimeoutError:
            return [None] * len(cache_keys)

    def store(self, vectors: Mapping[bytes, tuple[int, bytes, bool]]) -> None:
        """Stores vectors soon, each with the number of its tokens, and whether its input was truncated."""
        size = sum([len(data) for _, data, _ in vectors.values()])
        if not self._pending:
            self._pending_bytes = 0
        elif self._pending_bytes + size > MAX_PENDING_BYTES:
            return
        self._pending |= {key: CachedVector(self._now_ms, *vector) for key, vector in vectors.items()}
        self._pending_bytes += size
        self._wake.set()

    async def run(self) -> None:
        """Looks up and stores until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._lookups or self._pending:
                    await self._lookup_batch()
                    await self._store_batch()
            except RedisUnreachableError as error:
                log.debug("the cache is out of reach", reason=error.log_message)
                record_failing_call("the cache is out of reach", error)
                self._pending.clear()
                await asyncio.sleep(PAUSE_S)
            finally:
                self._release_lookups()

    async def _lookup_batch(self) -> None:
        cache_keys: list[bytes] = []
        batch: list[tuple[Sequence[bytes], asyncio.Future[CacheResults]]] = []
        while self._lookups and len(cache_keys) < MAX_KEYS_PER_CALL:
            batch.append(self._lookups.pop(0))
            cache_keys += batch[-1][0]
        if not cache_keys:
            return
        results: CacheResults = [None] * len(cache_keys)
        try:
            self._now_ms, results = await cache.lookup(self._connection, self._keys, self._bound, cache_keys)
        finally:
            remaining = iter(results)
            for keys_of_lookup, future in batch:
                part = [next(remaining) for _ in keys_of_lookup]
                if not future.done():
                    future.set_result(part)

    async def _store_batch(self) -> None:
        if self._pending:
            vectors = dict(list(self._pending.items())[:MAX_KEYS_PER_CALL])
            for key in vectors:
                del self._pending[key]
            await cache.store(self._connection, self._keys, self._bound, vectors)

    def _release_lookups(self) -> None:
        """Answers the waiting lookups with nothing, so that their vectors are computed."""
        for cache_keys, future in self._lookups:
            if not future.done():
                future.set_result([None] * len(cache_keys))
        self._lookups.clear()


class Cache(Protocol):
    """A cache of vectors, on one shard or several: see VectorCache."""

    async def run(self) -> None:
        """Looks up and stores until cancelled."""

    async def find(self, cache_keys: Sequence[bytes]) -> CacheResults:
        """Returns the vector under each key, or None."""
        ...

    def store(self, vectors: Mapping[bytes, tuple[int, bytes, bool]]) -> None:
        """Stores vectors soon."""


class CachingDispatcher:
    """A dispatcher that does not compute vectors that are in the cache.

    It relies on one model revision of all ready workers: while there are several, or none, all vectors are computed.

    Args:
        dispatcher: computes vectors.
        workers: returns the live workers.
        vector_cache: finds and stores vectors.
        charge: charges the tenant of a request for the tokens of cached vectors, as `Charges.charge` does; None: these
            are free.
        per_tenant: whether a tenant finds only its own vectors.
        count_hits: called with a request, and with the number of its inputs that the cache answers and their tokens.
    """

    def __init__(
        self,
        dispatcher: Dispatcher | ShardedDispatcher,
        workers: Callable[[], Sequence[Heartbeat]],
        vector_cache: Cache,
        charge: Charge | None = None,
        *,
        per_tenant: bool = False,
        count_hits: Callable[[InferenceRequest, int, int], None] = _count_nothing,
    ) -> None:
        self._dispatcher = dispatcher
        self._workers = workers
        self._vector_cache = vector_cache
        self._charge_tenant = charge
        self._per_tenant = per_tenant
        self._count_hits = count_hits

    async def run(self) -> None:
        """Looks up and stores until cancelled. An unexpected exception is logged, and PAUSE_S later it goes on."""
        while True:
            try:
                await self._vector_cache.run()
            except Exception:
                log.exception("the cache failed")
                await asyncio.sleep(PAUSE_S)

    async def answer(
        self, request: InferenceRequest, request_id: str = "", memory: HeldMemory | None = None
    ) -> InferenceResult:
        """Returns the result of a request.

        Raises:
            OverloadedError: there is too little memory for the vectors.
            RedbatchError: see the dispatcher, if any vector has to be computed.
        """
        revision = request.revision or self._revision()
        if request.op not in VECTOR_OPS or revision is None or request.input_errors or request.queries:
            return await self._dispatcher.answer(request, request_id, memory)
        owner = (request.tenant.name,) if self._per_tenant else ()
        try:
            options = self._with_default(request.options, revision)
            cache_keys = [cache_key(revision, options, each, owner) for each in request.inputs]
        except UnicodeEncodeError:  # the dispatcher raises the error for it
            return await self._dispatcher.answer(request, request_id, memory)
        cache_results = await self._vector_cache.find(cache_keys)
        if memory is not None and not memory.grow(sum(len(each.data) for each in cache_results if each is not None)):
            raise memory_full_error(random.random())  # noqa: S311 - spreads clients
        misses = [i for i, each in enumerate(cache_results) if each is None]
        metrics.CACHE_MISSES.inc(len(misses))
        metrics.CACHE_HITS.inc(len(cache_results) - len(misses))
        if not misses:
            await self._charge(request, cache_results, may_refuse=True)
            return _merge_results(cache_results, InferenceResult(()), misses, revision)
        remaining = request if len(misses) == len(cache_results) else _select_inputs(request, misses)
        started_at = time.monotonic()
        result = await self._dispatcher.answer(remaining, request_id, memory)
        self._store_vectors(result, revision, [cache_keys[i] for i in misses])
        if remaining is request:
            return result
        if all(part.revision == revision for part in result.parts if isinstance(part, Vectors)):
            await self._charge(request, cache_results, may_refuse=False)
            return _merge_results(cache_results, result, misses, revision)
        left_ms = request.timeout_ms - int((time.monotonic() - started_at) * 1000)  # the revision has changed meanwhile
        return await self._dispatcher.answer(request._replace(timeout_ms=max(1, left_ms)), "", memory)  # with a new id

    async def _charge(self, request: InferenceRequest, cache_results: CacheResults, *, may_refuse: bool) -> None:
        """Charges the tenant for what was cached, and counts it.

        Raises RedbatchError: its quota is exhausted, and `may_refuse`.
        """
        hits = [each.tokens for each in cache_results if each is not None]
        if self._charge_tenant is not None:
            await self._charge_tenant(request, sum(hits), may_refuse=may_refuse)
        self._count_hits(request, len(hits), sum(hits))

    def _revision(self) -> str | None:
        """Returns the model revision of all ready workers; None if there is not exactly one."""
        revisions = {each.revision for each in self._workers() if each.state == READY}
        [revision] = revisions if len(revisions) == 1 else [""]
        return revision or None

    def _with_default(self, options: Options, revision: str) -> Options:
        """Returns options with `normalize` as the model does it by default, if all its ready workers report that.

        Routes differ in whether they set it, and so would their keys for equal vectors.
        """
        if options.normalize is not None:
            return options
        reported = {each.normalizes for each in self._workers() if each.state == READY and each.revision == revision}
        return options._replace(normalize=reported.pop()) if len(reported) == 1 else options

    def _store_vectors(self, result: InferenceResult, revision: str, cache_keys: Sequence[bytes]) -> None:
        vectors: dict[bytes, tuple[int, bytes, bool]] = {}
        for part in result.parts:
            if isinstance(part, Vectors) and part.revision == revision and len(part.tokens) == part.n:
                size = 4 * part.dim
                for i, tokens in enumerate(part.tokens):
                    vector = part.data[i * size : (i + 1) * size]
                    vectors[cache_keys[part.position + i]] = tokens, vector, i in part.truncated
        self._vector_cache.store(vectors)


def _select_inputs(request: InferenceRequest, misses: Sequence[int]) -> InferenceRequest:
    indices = request.indices or range(len(request.inputs))
    return request._replace(inputs=tuple(request.inputs[i] for i in misses), indices=tuple(indices[i] for i in misses))


def _merge_results(
    cache_results: CacheResults, result: InferenceResult, misses: Sequence[int], revision: str
) -> InferenceResult:
    """Returns the result of a request from its cached vectors and from the result for the inputs at `misses`."""
    parts: list[Reply] = [
        Vectors("", i, 1, len(each.data) // 4, each.data, tokens=(each.tokens,), revision=revision)
        for i, each in enumerate(cache_results)
        if each is not None
    ]
    tokens = sum(each.tokens for each in cache_results if each is not None)
    for part in result.parts:
        if isinstance(part, Failure):
            parts.append(part._replace(position=misses[part.position]))
        elif isinstance(part, Vectors):
            size = 4 * part.dim
            parts += [
                Vectors(
                    "",
                    misses[part.position + i],
                    1,
                    part.dim,
                    part.data[i * size : (i + 1) * size],
                    tokens=part.tokens[i : i + 1],
                    revision=revision,
                )
                for i in range(part.n)
            ]
    parts.sort(key=lambda part: part.position)
    cached = [i for i, each in enumerate(cache_results) if each is not None and each.truncated]
    truncated = sorted([*cached, *(misses[i] for i in result.truncated)])
    return result._replace(parts=parts, tokens=result.tokens + tokens, truncated=truncated)
