"""Settings that gateways and workers share."""

from __future__ import annotations

import pytest

from shared.settings import QueueSettings


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://127.0.0.1:6380/0", "127.0.0.1:6380"),
        ("redis://redis.example/0", "redis.example:6379"),
        ("redis://:p%40ss@redis.example:1/0?password=secret", "redis.example:1"),
        ("rediss://user:pa@ss@redis.example:6380", "redis.example:6380"),
        ("redis://[fd00::1]:6380/0", "[fd00::1]:6380"),
        ("redis:///0", "localhost:6379"),
        ("unix://user:secret@/run/redis.sock?db=1", "/run/redis.sock"),
    ],
)
def test_the_address_of_redis_has_no_user_and_no_password(url: str, address: str) -> None:
    """Host and port, or the path of a socket."""
    assert QueueSettings(redis_url=url).redis_address == address
