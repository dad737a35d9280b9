"""URLs and command lines to print."""

from __future__ import annotations

import json
import shlex

import pytest

from redbatch.urls import curl_line, http_url, mask_password, redis_cli_line


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://:secret@host:6379/0", "redis://:***@host:6379/0"),
        ("rediss://user:secret@host/1", "rediss://user:***@host/1"),
        ("redis://user:se@cr:et@host", "redis://user:***@host"),
        ("redis://user@host", "redis://user@host"),
        ("unix:///run/redis.sock?db=1&password=secret", "unix:///run/redis.sock?db=1&password=***"),
        ("redis://host/0?password=secret#x", "redis://host/0?password=***#x"),
        ("not a url", "not a url"),
    ],
)
def test_passwords_are_masked(url: str, masked: str) -> None:
    """A password is masked wherever it appears in the URL; the rest stays unchanged."""
    assert mask_password(url) == masked


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


def test_curl_line_is_one_request() -> None:
    """The line is curl with the URL, the content type, a JSON body and, if there is one, the API key."""
    words = shlex.split(curl_line("http://127.0.0.1:8080"))
    assert words[0] == "curl"
    assert "http://127.0.0.1:8080/embed" in words
    assert words[words.index("-H") + 1] == "Content-Type: application/json"
    assert json.loads(words[words.index("-d") + 1]) == {"text": "hello"}
    with_api_key = shlex.split(curl_line("http://127.0.0.1:8080", "a.b"))
    assert "Authorization: Bearer a.b" in with_api_key
    assert [each for each in with_api_key if each not in words] == ["Authorization: Bearer a.b"]


def test_redis_cli_line_keeps_the_braces() -> None:
    """The braces of a Redis key are quoted for the shell; a socket has a separate flag."""
    key = "rb:{minilm}:q:interactive"
    words = shlex.split(redis_cli_line("redis-cli", "redis://127.0.0.1:1/0", "XLEN", key))
    assert words == ["redis-cli", "-u", "redis://127.0.0.1:1/0", "XLEN", key]
    words = shlex.split(redis_cli_line("redis-cli", "unix:///a b.sock?db=2", "XLEN", key))
    assert words == ["redis-cli", "-s", "/a b.sock", "-n", "2", "XLEN", key]
