"""Checks what a test leaves in Redis: only the permanent keys of its queue, empty, and keys that expire are allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import redis

from shared.keys import GROUP, QUEUES, Keys

PERMANENT = ("epoch", "jobs:all", "jobs:kept", "results")
EXPIRING = (
    "reply:",
    "bell:",
    "submitted:",
    "worker:",
    "begun:",
    "workers",
    "standby",
    "tenants",
    "job:",
    "idempotency:",
)


def find_leaks(
    client: redis.Redis, keys: Keys, consumers: Iterable[str] = (), *, dead: bool = False, uploads: bool = False
) -> list[str]:
    """Returns one sentence per leak. `consumers` may stay in the group; dead letters may stay if `dead` is set.

    `uploads` may stay, with what they reserve, where their gateway was killed or cut off: Redis drops them in time.
    """
    may_stay = frozenset(consumers)
    leaks: list[str] = []
    for name in sorted(_names(client, keys)):
        if name in keys.lanes:
            leaks += _lane_leaks(client, name, may_stay)
        elif name in (keys.backlog, keys.owed):
            reserved = _kept(client, keys) if name == keys.owed else Counter[str]()
            if uploads and name == keys.owed:
                reserved += _reserved(client, keys)
            leaks += _counter_leaks(client, name, reserved)
        elif name.removeprefix(keys.prefix) in PERMANENT:
            continue
        elif name == keys.uploads:
            leaks += [] if uploads else [f"{name}: {client.hlen(name)} uploads"]
        elif name == keys.dead:
            leaks += [] if dead or not client.xlen(name) else [f"{name}: {client.xlen(name)} dead letters"]
        elif not name.removeprefix(keys.prefix).startswith(EXPIRING):
            leaks.append(f"{name}: not a key of the contract")
        elif client.pttl(name) == -1:
            leaks.append(f"{name}: never expires")
    return leaks


def _hash(client: redis.Redis, name: str) -> dict[bytes, bytes]:
    fields: Any = client.hgetall(name)
    return dict(fields)


def _counter_leaks(client: redis.Redis, name: str, reserved: Counter[str]) -> Iterator[str]:
    for field, value in _hash(client, name).items():
        if field != b"looked_ms" and (left := int(value) - reserved[field.decode()]):
            yield f"{name}: {field.decode()} is {left}"


def _reserved(client: redis.Redis, keys: Keys) -> Counter[str]:
    """Returns what uploads reserve of the counters of what is owed, by field: see shared/lua/job_reservations.lua."""
    reserved: Counter[str] = Counter()
    for upload in _hash(client, keys.uploads).values():
        _, inputs, size, _, _, tenant, results = upload.decode().split(" ")
        amounts = {"jobs": "1", "job_inputs": inputs, "job_bytes": size, "upload_bytes": size, "result_bytes": results}
        for kind, amount in amounts.items():
            reserved[kind] += int(amount)
            reserved[f"{kind} {tenant}"] += int(amount)
    return reserved


def _kept(client: redis.Redis, keys: Keys) -> Counter[str]:
    """Returns what results of ended jobs hold of the same counters."""
    kept: Counter[str] = Counter()
    members: Any = client.zrange(keys.kept, 0, -1)
    for _, size, tenant in (member.decode().split(" ") for member in members):
        kept["kept_bytes"] += int(size)
        kept[f"kept_bytes {tenant}"] += int(size)
    return kept


def remove(client: redis.Redis, keys: Keys) -> None:
    """Deletes every key of the queue, and the queue from the set of queues."""
    for name in _names(client, keys):
        client.delete(name)
    client.zrem(QUEUES, keys.queue)


def _lane_leaks(client: redis.Redis, lane: str, may_stay: frozenset[str]) -> Iterator[str]:
    length = client.xlen(lane)
    if length:
        yield f"{lane}: {length} entries"
    groups: Any = client.xinfo_groups(lane)
    for group in groups:
        if group["name"] != GROUP.encode():
            yield f"{lane}: a group {group['name']!r}"
        if group["pending"]:
            yield f"{lane}: {group['pending']} pending"
    consumers: Any = client.xinfo_consumers(lane, GROUP) if groups else []
    remaining = {each["name"].decode() for each in consumers} - may_stay
    if remaining:
        yield f"{lane}: consumers {sorted(remaining)}"


def _names(client: redis.Redis, keys: Keys) -> list[str]:
    names: Any = client.scan_iter(match=f"{keys.prefix}*", count=1_000)
    return [name.decode() for name in names]
