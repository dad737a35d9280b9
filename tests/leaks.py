"""Checks what a test leaves in Redis: only the permanent keys of its queue, empty, and keys that expire are allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import redis

from shared.keys import GROUP, QUEUES, Keys

PERMANENT = ("epoch", "jobs:all", "results")
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


def find_leaks(client: redis.Redis, keys: Keys, consumers: Iterable[str] = (), *, dead: bool = False) -> list[str]:
    """Returns one sentence per leak. `consumers` may stay in the group; dead letters may stay if `dead` is set."""
    may_stay = frozenset(consumers)
    leaks: list[str] = []
    for name in sorted(_names(client, keys)):
        if name in keys.lanes:
            leaks += _lane_leaks(client, name, may_stay)
        elif name in (keys.backlog, keys.owed):
            counters: Any = {field: value for field, value in _hash(client, name).items() if field != b"looked_ms"}
            leaks += [
                f"{name}: {field.decode()} is {value.decode()}" for field, value in counters.items() if value != b"0"
            ]
        elif name.removeprefix(keys.prefix) in PERMANENT:
            continue
        elif name == keys.uploads:
            leaks.append(f"{name}: {client.hlen(name)} uploads")
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
