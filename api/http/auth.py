"""Lets in who has a key.

A key is looked up in Redis once in CACHE_TTL_S; so long may one that was revoked still open. While Redis is away, or after
it has lost its data, one that was good before goes on being good, for MAX_STALE_S: a request is to survive that.

Who sends wrong keys is told to wait, and a right one opens all the same: behind a load balancer all clients may have
one address. So what is not known is asked of Redis each time, and forgotten if there is none.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple, NoReturn

import structlog

from api.settings import GatewaySettings
from shared import api_keys
from shared.api_keys import ApiKey, Scope
from shared.connection import RedisConnection
from shared.errors import ForbiddenError, RedisUnreachableError, TooManyFailuresError, UnauthorizedError

log = structlog.get_logger()

CACHE_TTL_S = 1.0
MAX_CACHED_KEYS = 10_000
MAX_STALE_S = 300.0
LOOKUP_TIMEOUT_S = 1.0
"""Longest wait for Redis to say what it knows of a key."""

MAX_FAILURES, FAILURES_PER_S = 20, 2.0
"""So many wrong keys in a row may come from an address, and after that two in a second."""

MAX_ADDRESSES = 10_000
MAX_KEY_CHARS = 256


class NoKeysError(Exception):
    """A gateway is to ask for keys, and there are none; the message says what to do."""


class _CachedKey(NamedTuple):
    """What Redis said of a key: None, that there is none. It was `asked` last, and said so (`seen`), at these times."""

    key: ApiKey | None
    asked: float
    seen: float


class FailureLimiter:
    """Counts wrong keys by address: who sends them is soon told to wait."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, address: str, now: float) -> float:
        """Returns how long an address has to wait before it may send another wrong key."""
        return max(0.0, (1.0 - self._tries(address, now)) / FAILURES_PER_S)

    def failed(self, address: str, now: float) -> None:
        """Counts a wrong key. However many come at once, the wait does not grow beyond that for one more."""
        self._left[address] = (max(0.0, self._tries(address, now) - 1.0), now)
        self._left.move_to_end(address)
        if len(self._left) > MAX_ADDRESSES:
            self._left.popitem(last=False)

    def _tries(self, address: str, now: float) -> float:
        left, then = self._left.get(address, (MAX_FAILURES, now))
        return min(MAX_FAILURES, left + (now - then) * FAILURES_PER_S)


class ApiKeyAuthenticator:
    """Knows keys.

    Args:
        connection: a connection of its own.
    """

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._known: OrderedDict[str, _CachedKey] = OrderedDict()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._failures = FailureLimiter()

    async def admit(self, headers: Mapping[str, str], address: str, scope: Scope | None) -> ApiKey:
        """Returns the key that a request comes with.

        Args:
            headers: of the request.
            address: where it comes from.
            scope: what the key has to be for; None if any will do.

        Raises:
            UnauthorizedError: there is no key, or none that opens.
            Forbidden: it is for something else.
            TooManyFailuresError: too many wrong ones came from there.
            RedisUnreachableError: whether it opens is not known.
        """
        key_id, _, secret = _given(headers).partition(".")
        now = time.monotonic()
        known = self._known.get(key_id)
        if known is None or now - known.asked > CACHE_TTL_S:
            known = await self._asked(key_id)
        key = None if known is None else known.key
        if key is None or not _opens(key, secret):
            self._refuse(address, now)
        if scope is not None and scope not in key.scopes:
            raise ForbiddenError(f"This key is not for {scope}: its scopes are {', '.join(key.scopes)}.")
        return key

    def _refuse(self, address: str, now: float) -> NoReturn:
        wait_s = self._failures.wait_s(address, now)
        if wait_s > 0:
            raise TooManyFailuresError("Too many wrong keys came from your address.", retry_after_s=wait_s)
        self._failures.failed(address, now)
        raise UnauthorizedError("This key is not known, or was revoked, or has expired.")

    async def _asked(self, key_id: str) -> _CachedKey | None:
        """Returns what is known of a key once Redis was asked: by one for all who wait for it, and not for long."""
        task = self._asking.get(key_id)
        if task is None:
            task = self._asking[key_id] = asyncio.create_task(self._ask(key_id))
            task.add_done_callback(lambda _: self._asking.pop(key_id, None))
        done, _ = await asyncio.wait([task], timeout=LOOKUP_TIMEOUT_S)
        known = self._known.get(key_id)
        if done and task.exception() is None:
            return known
        now = time.monotonic()
        if known is None or known.key is None or now - known.seen > MAX_STALE_S:
            raise RedisUnreachableError("Redis does not say whether this key opens: try again.")
        self._known[key_id] = known._replace(asked=now)
        return known

    async def _ask(self, key_id: str) -> None:
        """Raises whatever Redis does."""
        now = time.monotonic()
        known = self._known.get(key_id)
        found, is_there = await api_keys.find(self._connection, key_id)
        if found is None and not is_there and known is not None and known.key is not None:
            log.warning("all keys are gone from Redis: those that were good are, for some minutes")
            if now - known.seen <= MAX_STALE_S:
                self._known[key_id] = known._replace(asked=now)
                return
        if found is None and known is None:
            return  # guesses must not push out what is known
        self._known[key_id] = _CachedKey(found, now, now)
        self._known.move_to_end(key_id)
        if len(self._known) > MAX_CACHED_KEYS:
            self._known.popitem(last=False)


async def create_authenticator(settings: GatewaySettings, connection: RedisConnection) -> ApiKeyAuthenticator | None:
    """Returns what a gateway asks for; None if everybody may come in.

    Raises:
        NoKeysError: nobody could come in, and nobody has said that this is meant (`--auth on`).
    """
    if not requires_keys(settings):
        return None
    try:
        keys = await api_keys.read_all(connection)
    except RedisUnreachableError as error:
        log.warning("cannot look for keys", reason=error.message)
    else:
        if not any(key.is_live(time.time() * 1000) for key in keys):
            _nobody_has_one(settings)
    return ApiKeyAuthenticator(connection)


def _nobody_has_one(settings: GatewaySettings) -> None:
    if settings.auth == "on":
        log.warning("there is no key yet, so nobody can come in: redbatch keys create")
        return
    raise NoKeysError(
        f"This gateway is to ask for a key, since it listens on {settings.host}, and there is none yet.\n"
        "Make one with `redbatch keys create` or let everybody in with --no-auth (REDBATCH_AUTH=off). "
        "With --auth on it starts nonetheless."
    )


def requires_keys(settings: GatewaySettings) -> bool:
    """Whether a gateway with these settings asks its clients for keys."""
    return settings.auth == "on" or (settings.auth == "auto" and not is_loopback(settings.host))


def is_loopback(host: str) -> bool:
    """Whether nobody from elsewhere can reach what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _given(headers: Mapping[str, str]) -> str:
    """Returns the key in a request's headers. Raises UnauthorizedError: there is none."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()
    if not given:
        raise UnauthorizedError("Send a key: Authorization: Bearer <key>, or x-api-key: <key>.")
    if len(given) > MAX_KEY_CHARS:
        raise UnauthorizedError("This is no key.")
    return given


def _opens(key: ApiKey, secret: str) -> bool:
    """Whether a secret is that of a key that has not expired."""
    return hmac.compare_digest(api_keys.digest_of(secret), key.digest) and key.is_live(time.time() * 1000)
