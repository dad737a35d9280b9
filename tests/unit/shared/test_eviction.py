"""The eviction policy of Redis, as INFO reports it."""

from __future__ import annotations

import pytest

from shared.eviction import evicts, parse_policy


@pytest.mark.parametrize(
    ("info", "policy", "loses"),
    [
        (b"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n", "noeviction", False),
        (b"maxmemory_policy:volatile-lru\r\nx:1", "volatile-lru", True),
        (b"used_memory:1\r\n", "", False),
        (b"", "", False),
    ],
)
def test_nothing_is_claimed_of_an_unknown_policy(info: bytes, policy: str, loses: bool) -> None:
    """Some managed services hide it."""
    assert parse_policy(info) == policy
    assert evicts(policy) is loses
