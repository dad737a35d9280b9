"""What sentinels and the servers of a Redis Cluster say about where a master is. Pure."""

from __future__ import annotations

import binascii
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from shared.redis_url import Address

MASTER_QUESTION = ("SENTINEL", "MASTER")
SLOTS_QUESTION = ("CLUSTER", "SLOTS")

NUM_SLOTS = 16_384

SlotRange = tuple[int, int, Address]
"""First and last slot of a range, and the master that has it."""


def newest_master(replies: Iterable[Sequence[bytes]]) -> Address | None:
    """Returns the address in the replies of sentinels to MASTER_QUESTION; None if no reply has one.

    A sentinel that was away knows an older master: that of the highest configuration epoch is the newest.
    """
    newest: tuple[int, Address] | None = None
    for reply in replies:
        fields = dict(zip(reply[::2], reply[1::2], strict=False))
        try:
            address = Address(fields[b"ip"].decode(), int(fields[b"port"]))
            epoch = int(fields[b"config-epoch"])
        except (KeyError, ValueError):
            continue
        if newest is None or epoch > newest[0]:
            newest = epoch, address
    return None if newest is None else newest[1]


def parse_slots(reply: Sequence[Any], queried: Address) -> list[SlotRange]:
    """Returns the ranges of slots in the reply of a server to SLOTS_QUESTION; raises ValueError for any other reply.

    A server that does not know its own host names none: it is the one that was queried.
    """
    try:
        return [
            (int(first), int(last), Address(_host_of(master[0]) or queried.host, int(master[1])))
            for first, last, master, *_replicas in reply
        ]
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ValueError("not a list of slots") from error


def _host_of(raw: bytes | None) -> str:
    return "" if raw is None or raw == b"?" else raw.decode()


def owner_of_slot(answers: Iterable[Sequence[SlotRange]], slot: int) -> Address | None:
    """Returns the master that most servers name for a slot: one that was away may not know of a failover yet."""
    owners = Counter(
        address for ranges in answers for first, last, address in ranges if first <= slot <= last
    ).most_common(1)
    return owners[0][0] if owners else None


def moved_to(reply: str, queried: Address) -> Address | None:
    """Returns the server that a MOVED reply of `queried` names; None if the reply is another one."""
    words = reply.split(" ")
    if words[0] != "MOVED" or len(words) < 3:  # noqa: PLR2004 - MOVED slot host:port
        return None
    host, _, port = words[2].rpartition(":")
    return Address(host.strip("[]") or queried.host, int(port)) if port.isdecimal() else None


def slot_of(tag: str) -> int:
    """Returns the slot of the keys with this hash tag: its CRC16, as the Redis Cluster specification says."""
    return binascii.crc_hqx(tag.encode(), 0) % NUM_SLOTS


def tag_of_shard(queue: str, number: int, num_shards: int) -> str:
    """Returns the hash tag of a shard whose slot lies in the part of all slots that its number has.

    Masters usually have equal, contiguous parts of the slots: then as many shards as masters have one each.
    """
    if num_shards == 1:
        return queue
    tags = (f"{queue}.{suffix}" for suffix in itertools.count())
    return next(tag for tag in tags if slot_of(tag) * num_shards // NUM_SLOTS == number)
