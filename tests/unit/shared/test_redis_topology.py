"""What sentinels and the servers of a Redis Cluster say about where a master is."""

from __future__ import annotations

from typing import Any

import pytest
from redis.crc import key_slot

from shared.redis_topology import (
    NUM_SLOTS,
    SlotRange,
    moved_to,
    newest_master,
    owner_of_slot,
    parse_slots,
    slot_of,
    switched_to,
    tag_of_shard,
)
from shared.redis_url import Address

A, B = Address("a", 1), Address("b", 2)


def of_sentinel(port: int, epoch: int) -> list[list[bytes]]:
    """Returns the replies of a sentinel for a master at this port. SENTINEL MASTER has the address from before."""
    fields = [b"name", b"mymaster", b"ip", b"10.0.0.9", b"port", b"9", b"config-epoch", b"%d" % epoch]
    return [[b"10.0.0.1", b"%d" % port], fields]


def test_the_master_with_the_highest_configuration_epoch_is_the_newest() -> None:
    """A sentinel that was away may still name the master from before, and answer first."""
    assert newest_master([of_sentinel(1, 3), of_sentinel(2, 12), of_sentinel(1, 3)]) == ("10.0.0.1", 2)


def test_most_sentinels_of_an_epoch_name_the_newest_master() -> None:
    """While a failover goes on, one of them may name the former master with the new epoch."""
    assert newest_master([of_sentinel(1, 12), of_sentinel(2, 12), of_sentinel(2, 12)]) == ("10.0.0.1", 2)


@pytest.mark.parametrize(
    "answers", [[], [[]], [[None, []]], [[[b"a", b"x"], [b"config-epoch", b"1"]]], [[[b"a", b"1"], [b"ip", b"a"]]]]
)
def test_answers_without_an_address_name_no_master(answers: list[list[bytes]]) -> None:
    """They come from another version, or from something else than a sentinel."""
    assert newest_master(answers) is None


def test_slots_have_the_address_of_their_master() -> None:
    """Replicas follow it in the reply. A server that has no name for itself is the one that was queried.

    One with a question mark has no name, and is known by its IP address, or not at all.
    """
    reply = [
        [0, 99, [b"10.0.0.1", 7000, b"id", []], [b"10.0.0.2", 7000, b"id", []]],
        [100, 199, [b"", 7001, b"id"]],
        [200, 299, [None, 7002, b"id"]],
        [300, 399, [b"?", 7003, b"id"]],
        [400, 499, [b"?", 7004, b"id", [b"ip", b"10.0.0.4"]]],
    ]
    assert parse_slots(reply, A) == [
        (0, 99, ("10.0.0.1", 7000)),
        (100, 199, ("a", 7001)),
        (200, 299, ("a", 7002)),
        (400, 499, ("10.0.0.4", 7004)),
    ]


@pytest.mark.parametrize("reply", [[b"x"], [[0, 1]], [[0, 1, b"a"]], [[0, b"x", [b"a", 1]]]])
def test_another_reply_is_no_list_of_slots(reply: list[object]) -> None:
    """Nothing is taken from it."""
    with pytest.raises(ValueError, match="not a list of slots"):
        parse_slots(reply, A)


@pytest.mark.parametrize(
    ("answers", "owner"),
    [
        ([[(0, 9, A)], [(0, 9, B)], [(0, 9, B)]], B),
        ([[(0, 4, A), (5, 9, B)]], B),
        ([[(0, 4, A)]], None),
        ([], None),
    ],
)
def test_most_servers_decide_who_has_a_slot(answers: list[list[SlotRange]], owner: Address | None) -> None:
    """One that was away during a failover still names the server from before."""
    assert owner_of_slot(answers, 5) == owner


@pytest.mark.parametrize(
    ("reply", "address"),
    [
        ("MOVED 3999 127.0.0.1:6381", ("127.0.0.1", 6381)),
        ("MOVED 3999 :6381", ("a", 6381)),
        ("MOVED 3999 fd00::1:6381", ("fd00::1", 6381)),
        ("MOVED 3999 ?:6381", None),
        ("MOVED 3999 host", None),
        ("MOVED", None),
        ("ASK 3999 127.0.0.1:6381", None),
        ("CLUSTERDOWN The cluster is down", None),
    ],
)
def test_moved_names_a_server(reply: str, address: tuple[str, int] | None) -> None:
    """No host means the same host. ASK is for one call, of a slot that is on its way."""
    assert moved_to(reply, A) == address


@pytest.mark.parametrize("tag", ["", "minilm", "minilm.17", "gpu:pool", "a" * 64])
def test_the_slot_of_a_tag_is_that_of_redis(tag: str) -> None:
    """As redis-py computes it for a whole key."""
    assert slot_of(tag) == key_slot(tag.encode())


@pytest.mark.parametrize("num_shards", [1, 2, 3, 5, 64])
def test_shards_are_spread_over_the_slots(num_shards: int) -> None:
    """Each has a part of them; the tag of the only shard is the queue, as without shards."""
    tags = [tag_of_shard("minilm", number, num_shards) for number in range(num_shards)]
    parts = [slot_of(tag) * num_shards // NUM_SLOTS for tag in tags]
    assert parts == list(range(num_shards))
    if num_shards == 1:
        assert tags == ["minilm"]


def test_a_sentinel_announces_the_new_address_of_a_master() -> None:
    """With its name, the old address and the new one."""
    message = [b"message", b"+switch-master", b"mymaster 10.0.0.1 6379 redis-2 6380"]
    assert switched_to(message, "mymaster") == Address("redis-2", 6380)
    assert switched_to(message, "another") is None


@pytest.mark.parametrize(
    "message",
    [
        1,
        [],
        [b"subscribe", b"+switch-master", 1],
        [b"message", b"+switch-master", b""],
        [b"message", b"+switch-master", b"mymaster a 1 b x"],
        [b"message", b"+switch-master", b"mymaster a 1 b 2 c"],
    ],
)
def test_any_other_message_announces_no_address(message: Any) -> None:  # noqa: ANN401 - as redis-py reads it
    """Nothing that a sentinel sends ends the process."""
    assert switched_to(message, "mymaster") is None
