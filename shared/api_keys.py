"""API keys of clients, and their scopes. `redbatch keys` writes them, and gateways read them.

A key is `<id>.<secret>`. Redis holds only the SHA-256 of the secret: the secret is 256 random bits, which cannot be
guessed from it, so a slow hash is not needed.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from shared.connection import RedisConnection
from shared.keys import API_KEYS
from shared.tenants import NO_QUOTA, Quota

Scope = Literal["embed", "jobs", "admin"]
SCOPES: tuple[Scope, ...] = ("embed", "jobs", "admin")

KEYS_PER_TURN = 200
"""Keys that are parsed, in 14 µs each, before other tasks have a turn."""

_ID_BYTES, _SECRET_BYTES = 8, 32

_MARK = "-"
"""A field that stays when the last key is deleted, and disappears if Redis loses its data."""


def _without_unknown(scopes: object) -> object:
    """Returns the known scopes: keys of other versions may have more, and stay valid for the rest."""
    return [each for each in scopes if each in SCOPES] if isinstance(scopes, list) else scopes


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as stored. Times are ms of the epoch; a key without `expires_ms` does not expire.

    `digest` is the SHA-256 of its secret, as hex. Its requests count for its `tenant`; `name` is for people. `quota` is
    the quota of its tenant.
    """

    key_id: str
    digest: str
    scopes: Annotated[tuple[Scope, ...], BeforeValidator(_without_unknown)]
    tenant: str
    name: str
    created_ms: int
    expires_ms: int | None = None
    quota: Quota = NO_QUOTA

    def is_live(self, now_ms: float) -> bool:
        """Whether it has not expired."""
        return self.expires_ms is None or now_ms < self.expires_ms


_API_KEY = TypeAdapter(ApiKey)


def new_id() -> str:
    """Returns the id of a new key."""
    return secrets.token_hex(_ID_BYTES)


def new_secret() -> str:
    """Returns the secret of a new key."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def new_key(
    scopes: Iterable[Scope],
    *,
    tenant: str = "",
    name: str = "",
    lifetime_s: float | None = None,
    quota: Quota = NO_QUOTA,
) -> tuple[ApiKey, str]:
    """Returns a new key as it is stored, and the key for the client, which is stored nowhere."""
    now_ms = int(time.time() * 1000)
    expires_ms = None if lifetime_s is None else now_ms + round(lifetime_s * 1000)
    secret = new_secret()
    key = ApiKey(new_id(), digest_of(secret), tuple(scopes), tenant, name, now_ms, expires_ms, quota)
    return key, f"{key.key_id}.{secret}"


def digest_of(secret: str) -> str:
    """Returns the digest of a secret, the only part of it that is stored."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


async def add(connection: RedisConnection, key: ApiKey) -> None:
    """Stores a key."""
    await connection.call("HSET", API_KEYS, _MARK, b"1", key.key_id, _API_KEY.dump_json(key))


async def find(connection: RedisConnection, key_id: str) -> tuple[ApiKey | None, bool]:
    """Returns the key with this id, and whether Redis still holds the hash of keys: it may have lost its data."""
    found, mark = await connection.call("HMGET", API_KEYS, key_id, _MARK)
    return None if found is None else _parse_key(found), mark is not None


async def read_all(connection: RedisConnection) -> list[ApiKey]:
    """Returns all keys, the oldest first. Invalid ones are left out."""
    return await parse_all(await read_raw(connection))


async def read_raw(connection: RedisConnection) -> list[bytes]:
    """Returns all keys as they are in Redis."""
    flat: list[bytes] = await connection.call("HGETALL", API_KEYS)
    return flat[1::2]


async def parse_all(raw: Sequence[bytes]) -> list[ApiKey]:
    """Returns the valid ones of all keys, the oldest first; other tasks have turns meanwhile."""
    keys: list[ApiKey] = []
    for number, each in enumerate(raw, 1):
        if (found := _parse_key(each)) is not None:
            keys.append(found)
        if number % KEYS_PER_TURN == 0:
            await asyncio.sleep(0)
    return sorted(keys, key=lambda key: (key.created_ms, key.key_id))


async def remove(connection: RedisConnection, key_id: str) -> bool:
    """Deletes a key; returns whether it existed."""
    return bool(await connection.call("HDEL", API_KEYS, key_id))


def _parse_key(raw: bytes) -> ApiKey | None:
    """Parses a key from Redis, which is untrusted: an invalid one gives no access."""
    try:
        return _API_KEY.validate_json(raw)
    except ValidationError:
        return None
