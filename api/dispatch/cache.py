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
from api.dialects.request import Asked
from api.dispatch.dispatcher import Answered, Dispatcher
from api.settings import GatewaySettings
from shared import cache
from shared.cache import CacheBound, Kept
from shared.errors import RedisUnreachable
from shared.keys import Keys
from shared.messages import EMBED, READY, Failure, Input, Options, Reply, Vectors
from shared.connection import Link

log = structlog.get_logger()

PATIENCE_S = 0.1
"""Longest wait for what may be there: a model takes about as long."""

PAUSE_S = 0.5
"""After Redis did not answer, everything is computed for so long."""

MOST_NAMES = 512
MOST_WAITING = 4_096
"""Vectors that wait to be kept; more are not kept."""

DIGEST_BYTES = 20

Found = list[Kept | None]


class Cache:
    """The vectors that gateways share.

    Args:
        link: a connection of its own.
        keys: the queue.
        bound: how much, and for how long.
    """

    def __init__(self, link: Link, keys: Keys, bound: CacheBound) -> None:
        self._link = link
        self._keys = keys
        self._bound = bound
        self._asked: list[tuple[Sequence[bytes], asyncio.Future[Found]]] = []
        self._kept: dict[bytes, Kept] = {}
        self._wake = asyncio.Event()
        self._now_ms = 0

    async def find(self, names: Sequence[bytes]) -> Found:
        """Returns what is there under each name; nothing, when Redis takes long."""
        found: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._asked.append((names, found))
        self._wake.set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await found
        except TimeoutError:
            return [None] * len(names)

    def keep(self, vectors: Mapping[bytes, tuple[int, bytes]]) -> None:
        """Keeps vectors soon, each with the number of its tokens."""
        if len(self._kept) < MOST_WAITING:
            self._kept.update({name: Kept(self._now_ms, *told) for name, told in vectors.items()})
            self._wake.set()

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._asked or self._kept:
                    await self._look_up()
                    await self._put()
            except RedisUnreachable as error:
                log.debug("the cache is away", reason=error.message)
                self._kept.clear()
                await asyncio.sleep(PAUSE_S)
            finally:
                self._give_up()

    async def _look_up(self) -> None:
        names: list[bytes] = []
        taken: list[tuple[Sequence[bytes], asyncio.Future[Found]]] = []
        while self._asked and len(names) < MOST_NAMES:
            taken.append(self._asked.pop(0))
            names += taken[-1][0]
        if not names:
            return
        found: Found = [None] * len(names)
        try:
            self._now_ms, found = await cache.lookup(self._link, self._keys, self._bound, names)
        finally:
            rest = iter(found)
            for each, future in taken:
                part = [next(rest) for _ in each]
                if not future.done():
                    future.set_result(part)

    async def _put(self) -> None:
        if self._kept:
            some = dict(list(self._kept.items())[:MOST_NAMES])
            for name in some:
                del self._kept[name]
            await cache.keep(self._link, self._keys, self._bound, some)

    def _give_up(self) -> None:
        """Has those who wait compute."""
        for names, future in self._asked:
            if not future.done():
                future.set_result([None] * len(names))
        self._asked.clear()


class Cached:
    """A dispatcher that computes nothing twice, as far as a cache remembers.

    It counts on the revision that all ready workers have: while there are several, or none, all is computed.
    """

    def __init__(self, dispatcher: Dispatcher, known: Cache) -> None:
        self._dispatcher = dispatcher
        self._known = known

    async def run(self) -> None:
        """Looks up and keeps, until cancelled. What was not foreseen is logged, and all is computed for a while."""
        while True:
            try:
                await self._known.run()
            except Exception:
                log.exception("the cache failed")
                await asyncio.sleep(PAUSE_S)

    async def answer(self, asked: Asked, request_id: str = "") -> Answered:
        """Returns what comes of a request. Raises as the dispatcher does, where something has to be computed."""
        revision = self._revision()
        if asked.op != EMBED or revision is None or asked.refused:
            return await self._dispatcher.answer(asked, request_id)
        try:
            names = [name_of(revision, asked.options, each) for each in asked.inputs]
        except UnicodeEncodeError:  # the dispatcher says what is wrong
            return await self._dispatcher.answer(asked, request_id)
        found = await self._known.find(names)
        missing = [i for i, each in enumerate(found) if each is None]
        metrics.CACHE_MISSES.inc(len(missing))
        metrics.CACHE_HITS.inc(len(found) - len(missing))
        if not missing:
            return _whole(found, Answered(()), missing)
        rest = asked if len(missing) == len(found) else _only(asked, missing)
        began = time.monotonic()
        answered = await self._dispatcher.answer(rest, request_id)
        self._keep(answered, revision, [names[i] for i in missing])
        if rest is asked:
            return answered
        if all(part.revision == revision for part in answered.parts if isinstance(part, Vectors)):
            return _whole(found, answered, missing)
        left_ms = asked.timeout_ms - int((time.monotonic() - began) * 1000)  # a new revision came meanwhile
        return await self._dispatcher.answer(asked._replace(timeout_ms=max(1, left_ms)))  # under an id of its own

    def _revision(self) -> str | None:
        """Returns the revision of all ready workers, if it is one."""
        revisions = {each.revision for each in self._dispatcher.monitor.workers() if each.state == READY}
        [revision] = revisions if len(revisions) == 1 else [""]
        return revision or None

    def _keep(self, answered: Answered, revision: str, names: Sequence[bytes]) -> None:
        vectors: dict[bytes, tuple[int, bytes]] = {}
        for part in answered.parts:
            if isinstance(part, Vectors) and part.revision == revision and len(part.tokens) == part.n:
                size = 4 * part.dim
                for i, tokens in enumerate(part.tokens):
                    vectors[names[part.position + i]] = tokens, part.data[i * size : (i + 1) * size]
        self._known.keep(vectors)


def cached_of(settings: GatewaySettings, dispatcher: Dispatcher) -> Cached | None:
    """Returns a dispatcher with a cache before it; None if the settings want none."""
    if not settings.cache_bytes:
        return None
    bound = CacheBound(settings.cache_bytes, int(settings.cache_ttl_s * 1000))
    queue = dispatcher.queue
    return Cached(dispatcher, Cache(queue.link("cache"), queue.keys, bound))


def name_of(revision: str, options: Options, given: Input) -> bytes:
    """Returns under what name the vector of an input is kept. Raises UnicodeEncodeError: it is no text."""
    kind, data = (b"ids", given) if isinstance(given, bytes) else (b"text", given.encode())
    head = repr((revision, *options)).encode()
    return hashlib.blake2b(b"\0".join((head, kind, data)), digest_size=DIGEST_BYTES).digest()


def _only(asked: Asked, missing: Sequence[int]) -> Asked:
    return asked._replace(inputs=tuple(asked.inputs[i] for i in missing))


def _whole(found: Found, answered: Answered, missing: Sequence[int]) -> Answered:
    """Returns the answer to a request of which only what was missing was computed."""
    parts: list[Reply] = [
        Vectors("", i, 1, len(each.data) // 4, each.data, tokens=(each.tokens,))
        for i, each in enumerate(found)
        if each is not None
    ]
    tokens = sum(each.tokens for each in found if each is not None)
    for part in answered.parts:
        if isinstance(part, Failure):
            parts.append(part._replace(position=missing[part.position]))
        elif isinstance(part, Vectors):
            size = 4 * part.dim
            parts += [
                Vectors("", missing[part.position + i], 1, part.dim, part.data[i * size : (i + 1) * size])
                for i in range(part.n)
            ]
    parts.sort(key=lambda part: part.position)
    return answered._replace(parts=parts, tokens=answered.tokens + tokens)
