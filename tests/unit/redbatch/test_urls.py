"""URLs and command lines to print."""

from __future__ import annotations

import shlex

import pytest

from redbatch.urls import http_url, redis_cli_line


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),  # noqa: S104 - it is only printed
        ("::", "http://[::1]:8080"),
        ("gpu-1", "http://gpu-1:8080"),
    ],
)
def test_url_can_be_reached_from_here(host: str, url: str) -> None:
    """A wildcard becomes a loopback address, and an IPv6 address gets brackets."""
    assert http_url(host, 8080) == url


def test_redis_cli_line_keeps_the_braces() -> None:
    """The braces of a Redis key are quoted for the shell; a socket has a separate flag."""
    key = "rb:{minilm}:q:interactive"
    words = shlex.split(redis_cli_line("redis-cli", "redis://127.0.0.1:1/0", "XLEN", key))
    assert words == ["redis-cli", "-u", "redis://127.0.0.1:1/0", "XLEN", key]
    words = shlex.split(redis_cli_line("redis-cli", "redis+cluster://u:p@a,b:1", "XLEN", key))
    assert words == ["redis-cli", "-c", "-u", "redis://u:***@a:6379", "XLEN", key]
    words = shlex.split(redis_cli_line("redis-cli", "unix:///a b.sock?db=2", "XLEN", key))
    assert words == ["redis-cli", "-s", "/a b.sock", "-n", "2", "XLEN", key]


def test_redis_cli_line_asks_a_sentinel() -> None:
    """Only it knows where the master is, which has the queue."""
    line = redis_cli_line("redis-cli", "redis+sentinel://u:p@s1,s2:1/mymaster/0", "XLEN", "key")
    assert line == "redis-cli -h s1 -p 26379 SENTINEL GET-MASTER-ADDR-BY-NAME mymaster"
