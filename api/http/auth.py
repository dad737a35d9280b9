"""Lets in who has a key.

A key is looked up in Redis once in KNOWN_S; so long may one that was revoked still open. While Redis is away, or after
it has lost its data, one that was good before goes on being good, for STALE_S: a request is to survive that.

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
from shared.api_keys import AccessKey, Scope
from shared.errors import Forbidden, RedisUnreachable, TooManyFailures, Unauthorized
from shared.connection import Link

log = structlog.get_logger()

KNOWN_S = 1.0
MOST_KNOWN = 10_000
STALE_S = 300.0
LOOK_UP_S = 1.0
"""Longest wait for Redis to say what it knows of a key."""

FAILURES, FAILURES_PER_S = 20, 2.0
"""So many wrong keys in a row may come from an address, and after that two in a second."""

MOST_ADDRESSES = 10_000
LONGEST = 256


class NoKeys(Exception):
    """A gateway is to ask for keys, and there are none; the message says what to do."""


class _Known(NamedTuple):
    """What Redis said of a key: None, that there is none. It was `asked` last, and said so (`seen`), at these times."""

    key: AccessKey | None
    asked: float
    seen: float


class Failures:
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
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)

    def _tries(self, address: str, now: float) -> float:
        left, then = self._left.get(address, (FAILURES, now))
        return min(FAILURES, left + (now - then) * FAILURES_PER_S)


class Gate:
    """Knows keys.

    Args:
        link: a connection of its own.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._failures = Failures()

    async def admit(self, headers: Mapping[str, str], address: str, scope: Scope | None) -> AccessKey:
        """Returns the key that a request comes with.

        Args:
            headers: of the request.
            address: where it comes from.
            scope: what the key has to be for; None if any will do.

        Raises:
            Unauthorized: there is no key, or none that opens.
            Forbidden: it is for something else.
            TooManyFailures: too many wrong ones came from there.
            RedisUnreachable: whether it opens is not known.
        """
        key_id, _, secret = _given(headers).partition(".")
        now = time.monotonic()
        known = self._known.get(key_id)
        if known is None or now - known.asked > KNOWN_S:
            known = await self._asked(key_id)
        key = None if known is None else known.key
        if key is None or not _opens(key, secret):
            self._refuse(address, now)
        if scope is not None and scope not in key.scopes:
            raise Forbidden(f"This key is not for {scope}: its scopes are {', '.join(key.scopes)}.")
        return key

    def _refuse(self, address: str, now: float) -> NoReturn:
        wait_s = self._failures.wait_s(address, now)
        if wait_s > 0:
            raise TooManyFailures("Too many wrong keys came from your address.", retry_after_s=wait_s)
        self._failures.failed(address, now)
        raise Unauthorized("This key is not known, or was revoked, or has expired.")

    async def _asked(self, key_id: str) -> _Known | None:
        """Returns what is known of a key once Redis was asked: by one for all who wait for it, and not for long."""
        task = self._asking.get(key_id)
        if task is None:
            task = self._asking[key_id] = asyncio.create_task(self._ask(key_id))
            task.add_done_callback(lambda _: self._asking.pop(key_id, None))
        done, _ = await asyncio.wait([task], timeout=LOOK_UP_S)
        known = self._known.get(key_id)
        if done and task.exception() is None:
            return known
        now = time.monotonic()
        if known is None or known.key is None or now - known.seen > STALE_S:
            raise RedisUnreachable("Redis does not say whether this key opens: try again.")
        self._known[key_id] = known._replace(asked=now)
        return known

    async def _ask(self, key_id: str) -> None:
        """Raises whatever Redis does."""
        now = time.monotonic()
        known = self._known.get(key_id)
        found, is_there = await api_keys.find(self._link, key_id)
        if found is None and not is_there and known is not None and known.key is not None:
            log.warning("all keys are gone from Redis: those that were good are, for some minutes")
            if now - known.seen <= STALE_S:
                self._known[key_id] = known._replace(asked=now)
                return
        if found is None and known is None:
            return  # guesses must not push out what is known
        self._known[key_id] = _Known(found, now, now)
        self._known.move_to_end(key_id)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)


async def gate_of(settings: GatewaySettings, link: Link) -> Gate | None:
    """Returns what a gateway asks for; None if everybody may come in.

    Raises:
        NoKeys: nobody could come in, and nobody has said that this is meant (`--auth on`).
    """
    if not asks_for_keys(settings):
        return None
    try:
        keys = await api_keys.read_all(link)
    except RedisUnreachable as error:
        log.warning("cannot look for keys", reason=error.message)
    else:
        if not any(key.live(time.time() * 1000) for key in keys):
            _nobody_has_one(settings)
    return Gate(link)


def _nobody_has_one(settings: GatewaySettings) -> None:
    if settings.auth == "on":
        log.warning("there is no key yet, so nobody can come in: redbatch keys create")
        return
    raise NoKeys(
        f"This gateway is to ask for a key, since it listens on {settings.host}, and there is none yet.\n"
        "Make one with `redbatch keys create` or let everybody in with --no-auth (REDBATCH_AUTH=off). "
        "With --auth on it starts nonetheless."
    )


def asks_for_keys(settings: GatewaySettings) -> bool:
    """Whether a gateway with these settings asks its clients for keys."""
    return settings.auth == "on" or (settings.auth == "auto" and not is_loopback(settings.host))


def is_loopback(host: str) -> bool:
    """Whether nobody from elsewhere can reach what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _given(headers: Mapping[str, str]) -> str:
    """Returns the key in a request's headers. Raises Unauthorized: there is none."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()
    if not given:
        raise Unauthorized("Send a key: Authorization: Bearer <key>, or x-api-key: <key>.")
    if len(given) > LONGEST:
        raise Unauthorized("This is no key.")
    return given


def _opens(key: AccessKey, secret: str) -> bool:
    """Whether a secret is that of a key that has not expired."""
    return hmac.compare_digest(api_keys.digest_of(secret), key.digest) and key.live(time.time() * 1000)
