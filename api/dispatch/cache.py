"""Answers what was computed before, and has the rest computed.

What is asked at the same time is looked up at once. The cache is a help, not a need: where it is slow or away,
everything is computed.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping, Sequence

import structlog

from api import metrics
from api.dialects.request import InferenceRequest, InferenceResult
from api.dispatch.dispatcher import Dispatcher
from api.settings import GatewaySettings
from shared import cache
from shared.cache import CacheBound, CachedVector
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.messages import EMBED, READY, Failure, Input, Options, Reply, Vectors

log = structlog.get_logger()

LOOKUP_TIMEOUT_S = 0.1
"""Longest wait for what may be there: a model takes about as long."""

PAUSE_S = 0.5
"""After Redis did not answer, everything is computed for so long."""

MAX_KEYS_PER_CALL = 512
MAX_PENDING_VECTORS = 4_096
"""Vectors that wait to be kept; more are not kept."""

DIGEST_BYTES = 20

CacheResults = list[CachedVector | None]


class VectorCache:
    """The vectors that gateways share.

    Args:
        connection: a connection of its own.
        keys: the queue.
        bound: how much, and for how long.
    """

    def __init__(self, connection: RedisConnection, keys: Keys, bound: CacheBound) -> None:
        self._connection = connection
        self._keys = keys
        self._bound = bound
        self._lookups: list[tuple[Sequence[bytes], asyncio.Future[CacheResults]]] = []
        self._pending: dict[bytes, CachedVector] = {}
        self._wake = asyncio.Event()
        self._now_ms = 0

    async def find(self, cache_keys: Sequence[bytes]) -> CacheResults:
        """Returns what is there under each name; nothing, when Redis takes long."""
        found: asyncio.Future[CacheResults] = asyncio.get_running_loop().create_future()
        self._lookups.append((cache_keys, found))
        self._wake.set()
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                return await found
        except TimeoutError:
            return [None] * len(cache_keys)

    def store(self, vectors: Mapping[bytes, tuple[int, bytes]]) -> None:
        """Keeps vectors soon, each with the number of its tokens."""
        if len(self._pending) < MAX_PENDING_VECTORS:
            self._pending.update({cache_key_: CachedVector(self._now_ms, *told) for cache_key_, told in vectors.items()})
            self._wake.set()

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._lookups or self._pending:
                    await self._lookup_batch()
                    await self._store_batch()
            except RedisUnreachableError as error:
                log.debug("the cache is away", reason=error.message)
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
        found: CacheResults = [None] * len(cache_keys)
        try:
            self._now_ms, found = await cache.lookup(self._connection, self._keys, self._bound, cache_keys)
        finally:
            remaining = iter(found)
            for each, future in batch:
                part = [next(remaining) for _ in each]
                if not future.done():
                    future.set_result(part)

    async def _store_batch(self) -> None:
        if self._pending:
            vectors = dict(list(self._pending.items())[:MAX_KEYS_PER_CALL])
            for cache_key_ in vectors:
                del self._pending[cache_key_]
            await cache.store(self._connection, self._keys, self._bound, vectors)

    def _release_lookups(self) -> None:
        """Has those who wait compute."""
        for cache_keys, future in self._lookups:
            if not future.done():
                future.set_result([None] * len(cache_keys))
        self._lookups.clear()


class CachingDispatcher:
    """A dispatcher that computes nothing twice, as far as a cache remembers.

    It counts on the revision that all ready workers have: while there are several, or none, all is computed.
    """

    def __init__(self, dispatcher: Dispatcher, vector_cache: VectorCache) -> None:
        self._dispatcher = dispatcher
        self._vector_cache = vector_cache

    async def run(self) -> None:
        """Looks up and keeps, until cancelled. What was not foreseen is logged, and all is computed for a while."""
        while True:
            try:
                await self._vector_cache.run()
            except Exception:
                log.exception("the cache failed")
                await asyncio.sleep(PAUSE_S)

    async def answer(self, request: InferenceRequest, request_id: str = "") -> InferenceResult:
        """Returns what comes of a request. Raises as the dispatcher does, where something has to be computed."""
        revision = self._revision()
        if request.op != EMBED or revision is None or request.input_errors:
            return await self._dispatcher.answer(request, request_id)
        try:
            cache_keys = [cache_key(revision, request.options, each) for each in request.inputs]
        except UnicodeEncodeError:  # the dispatcher says what is wrong
            return await self._dispatcher.answer(request, request_id)
        found = await self._vector_cache.find(cache_keys)
        missing = [i for i, each in enumerate(found) if each is None]
        metrics.CACHE_MISSES.inc(len(missing))
        metrics.CACHE_HITS.inc(len(found) - len(missing))
        if not missing:
            return _merge_results(found, InferenceResult(()), missing)
        remaining = request if len(missing) == len(found) else _select_inputs(request, missing)
        started_at = time.monotonic()
        result = await self._dispatcher.answer(remaining, request_id)
        self._store_vectors(result, revision, [cache_keys[i] for i in missing])
        if remaining is request:
            return result
        if all(part.revision == revision for part in result.parts if isinstance(part, Vectors)):
            return _merge_results(found, result, missing)
        left_ms = request.timeout_ms - int((time.monotonic() - started_at) * 1000)  # a new revision came meanwhile
        return await self._dispatcher.answer(request._replace(timeout_ms=max(1, left_ms)))  # under an id of its own

    def _revision(self) -> str | None:
        """Returns the revision of all ready workers, if it is one."""
        revisions = {each.revision for each in self._dispatcher.monitor.workers() if each.state == READY}
        [revision] = revisions if len(revisions) == 1 else [""]
        return revision or None

    def _store_vectors(self, result: InferenceResult, revision: str, cache_keys: Sequence[bytes]) -> None:
        vectors: dict[bytes, tuple[int, bytes]] = {}
        for part in result.parts:
            if isinstance(part, Vectors) and part.revision == revision and len(part.tokens) == part.n:
                size = 4 * part.dim
                for i, tokens in enumerate(part.tokens):
                    vectors[cache_keys[part.position + i]] = tokens, part.data[i * size : (i + 1) * size]
        self._vector_cache.store(vectors)


def create_caching_dispatcher(settings: GatewaySettings, dispatcher: Dispatcher) -> CachingDispatcher | None:
    """Returns a dispatcher with a cache before it; None if the settings want none."""
    if not settings.cache_bytes:
        return None
    bound = CacheBound(settings.cache_bytes, int(settings.cache_ttl_s * 1000))
    queue = dispatcher.queue
    return CachingDispatcher(dispatcher, VectorCache(queue.connection("cache"), queue.keys, bound))


def cache_key(revision: str, options: Options, value: Input) -> bytes:
    """Returns under what name the vector of an input is kept. Raises UnicodeEncodeError: it is no text."""
    kind, data = (b"ids", value) if isinstance(value, bytes) else (b"text", value.encode())
    head = repr((revision, *options)).encode()
    return hashlib.blake2b(b"\0".join((head, kind, data)), digest_size=DIGEST_BYTES).digest()


def _select_inputs(request: InferenceRequest, missing: Sequence[int]) -> InferenceRequest:
    return request._replace(inputs=tuple(request.inputs[i] for i in missing))


def _merge_results(found: CacheResults, result: InferenceResult, missing: Sequence[int]) -> InferenceResult:
    """Returns the answer to a request of which only what was missing was computed."""
    parts: list[Reply] = [
        Vectors("", i, 1, len(each.data) // 4, each.data, tokens=(each.tokens,))
        for i, each in enumerate(found)
        if each is not None
    ]
    tokens = sum(each.tokens for each in found if each is not None)
    for part in result.parts:
        if isinstance(part, Failure):
            parts.append(part._replace(position=missing[part.position]))
        elif isinstance(part, Vectors):
            size = 4 * part.dim
            parts += [
                Vectors("", missing[part.position + i], 1, part.dim, part.data[i * size : (i + 1) * size])
                for i in range(part.n)
            ]
    parts.sort(key=lambda part: part.position)
    return result._replace(parts=parts, tokens=result.tokens + tokens)
