"""Lets in who has a key.

A key is looked up in Redis once in KNOWN_S; so long may one that was revoked still open. While Redis is away, one that
was good before goes on being good: whoever it lets in is told that Redis is away.
"""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple

import structlog

from api.settings import GatewaySettings
from shared import access
from shared.access import AccessKey, Scope
from shared.errors import Forbidden, RedisUnreachable, TooManyFailures, Unauthorized
from shared.queue import Link

log = structlog.get_logger()

KNOWN_S = 1.0
MOST_KNOWN = 10_000
STALE_S = 300.0

FAILURES, FAILURES_PER_S = 20, 0.5
"""So many wrong keys in a row may come from an address, and after that one in two seconds."""

MOST_ADDRESSES = 10_000
LONGEST = 256
NOBODY = access.digest_of("")


class NoKeys(Exception):
    """A gateway is to ask for keys, and there are none; the message says what to do."""


class _Known(NamedTuple):
    key: AccessKey | None
    seen: float


class Failures:
    """Counts wrong keys by address: who guesses is soon told to wait. Right keys of the same address still open."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, address: str, now: float) -> float:
        """Returns how long an address has to wait before it may try another key."""
        return max(0.0, (1.0 - self._tries(address, now)) / FAILURES_PER_S)

    def failed(self, address: str, now: float) -> None:
        """Counts a wrong key."""
        self._left[address] = (self._tries(address, now) - 1.0, now)
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
        given = _given(headers)
        key_id, _, secret = given.partition(".")
        now = time.monotonic()
        key = self._remembered(key_id, now)
        if not _opens(key, secret):
            wait_s = self._failures.wait_s(address, now)
            if wait_s > 0:
                raise TooManyFailures("Too many wrong keys came from your address.", retry_after_s=wait_s)
            key = await self._look_up(key_id, now)
        if key is None or not _opens(key, secret):
            self._failures.failed(address, now)
            raise Unauthorized("This key is not known, or was revoked, or has expired.")
        if scope is not None and scope not in key.scopes:
            raise Forbidden(f"This key is not for {scope}: its scopes are {', '.join(key.scopes)}.")
        return key

    def _remembered(self, key_id: str, now: float) -> AccessKey | None:
        known = self._known.get(key_id)
        return None if known is None or now - known.seen > KNOWN_S else known.key

    async def _look_up(self, key_id: str, now: float) -> AccessKey | None:
        known = self._known.get(key_id)
        if known is not None and now - known.seen <= KNOWN_S:
            return known.key
        try:
            found = await access.find(self._link, key_id)
        except RedisUnreachable:
            if known is not None and known.key is not None and now - known.seen <= STALE_S:
                return known.key
            raise
        self._known[key_id] = _Known(found, now)
        self._known.move_to_end(key_id)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return found


async def gate_of(settings: GatewaySettings, link: Link) -> Gate | None:
    """Returns what a gateway asks for; None if everybody may come in.

    Raises:
        NoKeys: nobody could come in.
    """
    if settings.auth == "off" or (settings.auth == "auto" and is_loopback(settings.host)):
        return None
    try:
        keys = await access.read_all(link)
    except RedisUnreachable as error:
        log.warning("cannot look for keys", reason=error.message)
    else:
        if not any(key.live(time.time() * 1000) for key in keys):
            why = "because of --auth on" if settings.auth == "on" else f"since it listens on {settings.host}"
            raise NoKeys(
                f"This gateway is to ask for a key, {why}, and there is none yet.\n"
                "Make one with `redbatch keys create`, or let everybody in with --no-auth (REDBATCH_AUTH=off)."
            )
    return Gate(link)


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


def _opens(key: AccessKey | None, secret: str) -> bool:
    """Whether a secret is that of a key that has not expired; takes as long whether there is a key or not."""
    same = hmac.compare_digest(access.digest_of(secret), NOBODY if key is None else key.digest)
    return same and key is not None and key.live(time.time() * 1000)
