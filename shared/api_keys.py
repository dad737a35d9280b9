"""Keys of clients: who may ask gateways for what. `redbatch keys` writes them, and gateways read them.

A key is `<id>.<secret>`. Redis holds the secret's SHA-256 alone: the secret is 256 random bits, which nobody guesses
from it, so it takes no slow hash.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from shared.keys import ACCESS_KEYS
from shared.connection import Link
from shared.tenants import NO_QUOTA, Quota

Scope = Literal["embed", "jobs", "admin"]
SCOPES: tuple[Scope, ...] = ("embed", "jobs", "admin")

_ID_BYTES, _SECRET_BYTES = 8, 32

_MARK = "-"
"""A field that stays when the last key goes, and goes with the data."""


@dataclass(frozen=True, slots=True)
class AccessKey:
    """What is known of a key. Times are ms of the epoch; one without `expires_ms` does not expire.

    `digest` is the SHA-256 of its secret, as hex. What is asked with it counts for its `tenant`; `name` is for people.
    `quota` is what its tenant may have.
    """

    key_id: str
    digest: str
    scopes: tuple[Scope, ...]
    tenant: str
    name: str
    created_ms: int
    expires_ms: int | None = None
    quota: Quota = NO_QUOTA

    def live(self, now_ms: float) -> bool:
        """Whether it has not expired."""
        return self.expires_ms is None or now_ms < self.expires_ms


_ACCESS_KEY = TypeAdapter(AccessKey)


def new_id() -> str:
    """Returns a key's id."""
    return secrets.token_hex(_ID_BYTES)


def new_secret() -> str:
    """Returns a key's secret."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def new_key(
    scopes: Iterable[Scope],
    *,
    tenant: str = "",
    name: str = "",
    lifetime_s: float | None = None,
    quota: Quota = NO_QUOTA,
) -> tuple[AccessKey, str]:
    """Returns what is to be kept of a new key, and the key itself, which is nowhere else."""
    now_ms = int(time.time() * 1000)
    expires_ms = None if lifetime_s is None else now_ms + round(lifetime_s * 1000)
    secret = new_secret()
    key = AccessKey(new_id(), digest_of(secret), tuple(scopes), tenant, name, now_ms, expires_ms, quota)
    return key, f"{key.key_id}.{secret}"


def digest_of(secret: str) -> str:
    """Returns what is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


async def add(link: Link, key: AccessKey) -> None:
    """Keeps a key."""
    await link.call("HSET", ACCESS_KEYS, _MARK, b"1", key.key_id, _ACCESS_KEY.dump_json(key))


async def find(link: Link, key_id: str) -> tuple[AccessKey | None, bool]:
    """Returns the key with that id, and whether Redis has its keys at all: it may have lost them."""
    found, mark = await link.call("HMGET", ACCESS_KEYS, key_id, _MARK)
    return None if found is None else _parsed(found), mark is not None


async def read_all(link: Link) -> list[AccessKey]:
    """Returns all keys, the oldest first. What is none is left out."""
    flat = await link.call("HGETALL", ACCESS_KEYS)
    keys = [found for raw in flat[1::2] if (found := _parsed(raw)) is not None]
    return sorted(keys, key=lambda key: (key.created_ms, key.key_id))


async def remove(link: Link, key_id: str) -> bool:
    """Forgets a key; returns whether there was one."""
    return bool(await link.call("HDEL", ACCESS_KEYS, key_id))


def _parsed(raw: bytes) -> AccessKey | None:
    """What is in Redis is untrusted: what is no key opens nothing."""
    try:
        return _ACCESS_KEY.validate_json(raw)
    except ValidationError:
        return None
