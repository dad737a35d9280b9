"""Authenticates clients by their API keys.

A key is looked up in Redis at most once in CACHE_TTL_S; a revoked key may stay valid for that time. While Redis is
unreachable, or after it has lost its data, a key that was valid before stays valid for MAX_STALE_S, so that requests
survive this.

An address that sends wrong keys has to wait, but a valid key from the same address is accepted: behind a load balancer
all clients may have one address. So an unknown key is looked up in Redis each time, and not cached if there is none.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import structlog

from api.any_shard import first_answer
from api.settings import GatewaySettings
from shared import api_keys
from shared.api_keys import ApiKey, Scope
from shared.connection import RedisConnection
from shared.errors import ForbiddenError, RedisUnreachableError, TooManyFailuresError, UnauthorizedError
from shared.process.limited_log import LimitedLog
from shared.process.listener import is_loopback
from shared.redis_errors import KeyMovedError

log, limited_log = structlog.get_logger(), LimitedLog()

CACHE_TTL_S = 1.0
MAX_CACHED_KEYS = 10_000
MAX_STALE_S = 300.0
LOOKUP_TIMEOUT_S = 1.0
"""Maximum wait for Redis to return a key."""

MAX_FAILURES, FAILURES_PER_S = 20, 2.0
"""An address may send this many wrong keys in a row, and after that two per second."""

MAX_ADDRESSES = 10_000
MAX_KEY_CHARS = 256


class NoKeysError(Exception):
    """The gateway requires API keys, but has none; the message says what to do."""


class _CachedKey(NamedTuple):
    """A look-up of a key; `key` is None if there is none.

    `checked` is when Redis was last queried, and `confirmed` when it last returned this result; both monotonic (s).
    """

    key: ApiKey | None
    checked: float
    confirmed: float


class FailureLimiter:
    """Counts wrong keys by address, as a token bucket: an address that sends many has to wait."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, address: str, now: float) -> float:
        """Returns how long (s) an address has to wait before it may send another wrong key."""
        return max(0.0, (1.0 - self._attempts_left(address, now)) / FAILURES_PER_S)

    def record_failure(self, address: str, now: float) -> None:
        """Counts a wrong key. However many arrive at once, the wait is never longer than for one more."""
        self._buckets[address] = (max(0.0, self._attempts_left(address, now) - 1.0), now)
        self._buckets.move_to_end(address)
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)

    def _attempts_left(self, address: str, now: float) -> float:
        attempts, updated = self._buckets.get(address, (MAX_FAILURES, now))
        return min(MAX_FAILURES, attempts + (now - updated) * FAILURES_PER_S)


class ApiKeyAuthenticator:
    """Checks API keys, with a cache of those that Redis has returned.

    Args:
        connections: to each Redis, or Redis Cluster, that has API keys; used by nothing else.
    """

    def __init__(self, connections: Sequence[RedisConnection]) -> None:
        self._connections = connections
        self._cache: OrderedDict[str, _CachedKey] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[None]] = {}
        self._failures = FailureLimiter()

    async def admit(self, headers: Mapping[str, str], address: str, scope: Scope | None) -> ApiKey:
        """Returns the API key of a request.

        Args:
            headers: of the request.
            address: of the client.
            scope: that the key must have; None if any key is accepted.

        Raises:
            UnauthorizedError: the key is missing or invalid.
            ForbiddenError: the key lacks the scope.
            TooManyFailuresError: the address sent too many wrong keys.
            RedisUnreachableError: Redis does not answer, and the key was not confirmed lately.
        """
        key_id, _, secret = _credentials(headers).partition(".")
        now = time.monotonic()
        cached = self._cache.get(key_id)
        if cached is None or now - cached.checked > CACHE_TTL_S:
            cached = await self._look_up(key_id)
        key = None if cached is None else cached.key
        if key is None or not _is_valid(key, secret):
            self._reject(address, now, "" if key is None else key.key_id)
        if scope is not None and scope not in key.scopes:
            message = f"This key lacks the scope {scope}: its scopes are {', '.join(key.scopes) or 'none'}."
            raise ForbiddenError(message, key_id=key.key_id)
        return key

    def _reject(self, address: str, now: float, key_id: str) -> NoReturn:
        wait_s = self._failures.wait_s(address, now)
        if wait_s > 0:
            raise TooManyFailuresError(
                "Too many wrong keys came from your address: wait, then try again.",
                retry_after_s=wait_s,
                key_id=key_id,
            )
        self._failures.record_failure(address, now)
        raise UnauthorizedError("This key is unknown, was revoked, or has expired.", key_id=key_id)

    async def _look_up(self, key_id: str) -> _CachedKey | None:
        """Returns the cached key after a query to Redis, which all requests with this key share.

        Raises:
            RedisUnreachableError: Redis fails or takes longer than LOOKUP_TIMEOUT_S, and the cached key is too old.
        """
        task = self._lookups.get(key_id)
        if task is None:
            task = self._lookups[key_id] = asyncio.create_task(self._refresh(key_id))
            task.add_done_callback(lambda _: self._lookups.pop(key_id, None))
        done, _ = await asyncio.wait([task], timeout=LOOKUP_TIMEOUT_S)
        cached = self._cache.get(key_id)
        if done and task.exception() is None:
            return cached
        now = time.monotonic()
        if cached is None or cached.key is None or now - cached.confirmed > MAX_STALE_S:
            raise RedisUnreachableError("Redis does not answer, so the key cannot be checked: try again.")
        self._cache[key_id] = cached._replace(checked=now)
        return cached

    async def _refresh(self, key_id: str) -> None:
        """Queries Redis and updates the cache. Raises the errors of Redis."""
        now = time.monotonic()
        cached = self._cache.get(key_id)
        calls = [self._find(each, key_id) for each in self._connections]
        # One that lost its keys has only those that were created since: another one may know the key.
        key, any_keys = await first_answer(calls, lambda found: found[0] is not None, lambda found: found[1])
        if key is None and not any_keys and cached is not None and cached.key is not None:
            limited_log.write(
                logging.WARNING, "all API keys are gone from Redis: cached keys stay valid for some minutes"
            )
            if now - cached.confirmed <= MAX_STALE_S:
                self._cache[key_id] = cached._replace(checked=now)
                return
        if key is None and cached is None:
            return  # guessed keys must not evict cached ones
        self._cache[key_id] = _CachedKey(key, now, now)
        self._cache.move_to_end(key_id)
        if len(self._cache) > MAX_CACHED_KEYS:
            self._cache.popitem(last=False)

    async def _find(self, connection: RedisConnection, key_id: str) -> tuple[ApiKey | None, bool]:
        """Does as `api_keys.find`. Beside other shards, no look-up waits for those before it at a Redis that hangs."""
        if len(self._connections) == 1:
            return await api_keys.find(connection, key_id)
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                return await api_keys.find(connection, key_id)
        except TimeoutError:
            raise RedisUnreachableError("Redis does not answer: try again.") from None


async def create_authenticator(
    settings: GatewaySettings, connections: Sequence[RedisConnection]
) -> ApiKeyAuthenticator | None:
    """Returns the authenticator of a gateway; None if it requires no API keys.

    Raises:
        NoKeysError: no valid key exists, so no client could connect, and `--auth on` does not confirm that. Or they
            are on another server of a Redis Cluster.
    """
    if not requires_keys(settings):
        return None
    try:
        keys = await first_answer((api_keys.read_all(each) for each in connections), _has_live_key)
    except KeyMovedError as error:
        if not error.is_elsewhere:  # on its way: it can be read soon
            log.warning("cannot read API keys", reason=error.log_message)
            return ApiKeyAuthenticator(connections)
        raise NoKeysError(
            "This gateway requires API keys, but they are on another server of the Redis Cluster "
            f"(rb:keys: {error.reply}): use a Redis without cluster mode, or admit all clients with --no-auth "
            "(REDBATCH_AUTH=off)."
        ) from error
    except RedisUnreachableError as error:
        log.warning("cannot read API keys", reason=error.log_message)
    else:
        if not _has_live_key(keys):
            _handle_missing_api_keys(settings)
    return ApiKeyAuthenticator(connections)


def _has_live_key(keys: Sequence[ApiKey]) -> bool:
    return any(key.is_live(time.time() * 1000) for key in keys)


def _handle_missing_api_keys(settings: GatewaySettings) -> None:
    if settings.auth == "on":
        log.warning("no API key exists, so no client can connect: run redbatch keys create")
        return
    raise NoKeysError(
        f"This gateway requires API keys, because it listens on {settings.host}, and no key exists yet.\n"
        "Create one with `redbatch keys create`, or admit all clients with --no-auth (REDBATCH_AUTH=off). "
        "With --auth on it starts without a key."
    )


def requires_keys(settings: GatewaySettings) -> bool:
    """Whether a gateway with these settings requires API keys."""
    return settings.auth == "on" or (settings.auth == "auto" and not is_loopback(settings.host))


def is_for_this_machine(settings: GatewaySettings) -> bool:
    """Whether a gateway requires no keys because its clients are on this machine, without a proxy for others.

    These reach it by an address or `localhost`. With `--auth off` the operator admits all.
    """
    return settings.auth == "auto" and is_loopback(settings.host) and not settings.trusted_proxies


def _credentials(headers: Mapping[str, str]) -> str:
    """Returns the API key in a request's headers. Raises UnauthorizedError: the key is missing or too long."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    credentials = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()
    if not credentials:
        raise UnauthorizedError("Send an API key: Authorization: Bearer <key>, or x-api-key: <key>.")
    if len(credentials) > MAX_KEY_CHARS:
        raise UnauthorizedError("This is not an API key: it is too long.")
    return credentials


def _is_valid(key: ApiKey, secret: str) -> bool:
    """Whether the secret matches the key, compared in constant time, and the key has not expired."""
    return hmac.compare_digest(api_keys.digest_of(secret), key.digest) and key.is_live(time.time() * 1000)
