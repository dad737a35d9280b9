"""What sentinels and the servers of a Redis Cluster say about where a master is. Pure."""

from __future__ import annotations

import binascii
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from shared.redis_url import Address

SLOTS_QUESTION = ("CLUSTER", "SLOTS")

SWITCH_CHANNEL = "+switch-master"
"""The channel on which a sentinel announces that a master has another address."""

NUM_SLOTS = 16_384

SlotRange = tuple[int, int, Address]
"""First and last slot of a range, and the master that has it."""


def master_questions(name: str) -> list[tuple[str, ...]]:
    """Returns the commands that ask a sentinel for the address of a master, and for how new its answer is.

    While replicas follow a new master, the sentinel that promoted it reports the former one in SENTINEL MASTER, already
    with the new epoch; GET-MASTER-ADDR-BY-NAME has the new one.
    """
    return [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name), ("SENTINEL", "MASTER", name)]


def newest_master(answers: Iterable[Sequence[Any]]) -> Address | None:
    """Returns the address in the answers of sentinels to `master_questions`; None if no answer has one.

    A sentinel that was away knows an older master: that of the highest configuration epoch is the newest, and of equal
    ones that which most sentinels name.
    """
    votes: Counter[tuple[int, Address]] = Counter()
    for answer in answers:
        try:
            (host, port), fields = answer
            epoch = int(dict(zip(fields[::2], fields[1::2], strict=False))[b"config-epoch"])
            votes[epoch, Address(host.decode(), int(port))] += 1
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
    return max(votes, key=lambda vote: (vote[0], votes[vote]))[1] if votes else None


def switched_to(message: Sequence[Any], name: str) -> Address | None:
    """Returns the new address of a master in a message of SWITCH_CHANNEL; None if the message is not about it."""
    try:
        master, _old_host, _old_port, host, port = message[2].decode().split(" ")
        return Address(host, int(port)) if master == name else None
    except (AttributeError, IndexError, TypeError, ValueError):
        return None


def parse_slots(reply: Sequence[Any], queried: Address) -> list[SlotRange]:
    """Returns the ranges of slots in the reply of a server to SLOTS_QUESTION; raises ValueError for any other reply.

    A server that does not know its own host names none: it is the one that was queried. "?" stands for a host name that
    a server does not have; its IP address may follow.
    """
    ranges = []
    try:
        for first, last, master, *_replicas in reply:
            if host := _host_of(master) or ("" if master[0] == b"?" else queried.host):
                ranges.append((int(first), int(last), Address(host, int(master[1]))))
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ValueError("not a list of slots") from error
    return ranges


def _host_of(master: Sequence[Any]) -> str:
    host, *_ = master
    if host not in (None, b"", b"?"):
        return str(host.decode())
    metadata = master[3] if host == b"?" and len(master) > 3 else []  # noqa: PLR2004 - host, port, id, metadata
    fields = dict(zip(metadata[::2], metadata[1::2], strict=False))
    return str(fields.get(b"ip", b"").decode())


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
    return Address(host.strip("[]") or queried.host, int(port)) if port.isdecimal() and host != "?" else None


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
