"""Settings that gateways and workers share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from shared.redis_url import parse_url
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


def test_each_shard_has_settings_of_one_redis() -> None:
    """The hosts of one URL may be separated by commas too."""
    urls = ["redis://a:1/0", "rediss://user:p@b:2", "unix:///run/redis.sock"]
    settings = QueueSettings(redis_shards=",".join(urls), redis_timeout_s=3)
    assert [each.redis_url for each in settings.shards] == urls
    assert {(each.redis_shards, each.redis_timeout_s) for each in settings.shards} == {("", 3)}


def test_shards_of_a_redis_cluster_have_its_url() -> None:
    """With the number of each; only the number of all is a setting."""
    settings = QueueSettings(redis_url="rediss+cluster://:p@a,b", queue_shards=3)
    parsed = [parse_url(each.redis_url) for each in settings.shards]
    assert [each.shard for each in parsed] == [(0, 3), (1, 3), (2, 3)]
    assert {each.server_url for each in parsed} == {"rediss://:p@a:6379"}
    assert {each.queue_shards for each in settings.shards} == {1}


def test_one_redis_is_the_only_shard() -> None:
    """Without a list of shards."""
    settings = QueueSettings(redis_url="redis://a")
    assert settings.shards == (settings,)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"redis_shards": "redis://a,redis://:p@b:x"}, "URL 2: its port is not a number from 1 to 65535"),
        ({"redis_shards": "redis://a,b"}, "URL 1: it takes one host"),
        ({"redis_shards": "redis://a,redis://b,redis://a"}, "a URL is there twice"),
        ({"redis_shards": "redis://a"}, "it takes two or more URLs: for one Redis, set redis_url"),
        ({"redis_shards": "redis://a,redis://b", "redis_url": "redis://c"}, "redis_url and redis_shards exclude each"),
        ({"redis_url": "redis://a", "queue_shards": "2"}, "queue_shards is for a redis_url of a whole Redis Cluster"),
        ({"redis_shards": "redis://a,redis://b", "queue_shards": "2"}, "queue_shards is for a redis_url of a whole"),
        ({"redis_url": "redis+cluster://a?shard=0/2", "queue_shards": "2"}, "queue_shards is for a redis_url of a"),
        ({"redis_url": "redis://a", "redis_sentinel_password": "p"}, "redis_sentinel_password is for redis.sentinel"),
        ({"redis_shards": "redis://a,redis://b", "redis_tls_ca": "/ca.pem"}, "no URL of Redis begins with rediss"),
    ],
)
def test_a_list_of_shards_is_checked(settings: dict[str, str], problem: str) -> None:
    """Each URL as that of one Redis; the error names no part of a URL, which may be of a password."""
    with pytest.raises(ValidationError, match=problem):
        QueueSettings.model_validate(settings)


@pytest.mark.parametrize("url", ["redis://user@redis/0", "redis+sentinel://user@s1,s2/mymaster", "redis://redis/0"])
def test_a_password_file_goes_with_a_url_without_a_password(tmp_path: Path, url: str) -> None:
    """The URL may have a user."""
    (tmp_path / "password").write_text("secret", encoding="utf-8")
    path = str(tmp_path / "password")
    assert QueueSettings(redis_url=url, redis_password_file=path).redis_password_file == path


@pytest.mark.parametrize(
    ("url", "content", "problem"),
    [
        ("redis://user:p@redis/0", b"secret", "redis_url has a password too; use one of them"),
        ("redis://redis/0?password=p", b"secret", "redis_url has a password too; use one of them"),
        ("redis://user@redis/0", b" \n", "it is empty"),
        ("redis://user@redis/0", b"\xff", "it is not UTF-8"),
        ("redis://user@redis/0", None, "it cannot be read (No such file or directory)"),
    ],
)
def test_a_password_file_that_cannot_be_used_is_refused(
    tmp_path: Path, url: str, content: bytes | None, problem: str
) -> None:
    """A process ends at its start, as with an unreadable certificate."""
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    with pytest.raises(ValidationError, match=re.escape(problem)):
        QueueSettings(redis_url=url, redis_password_file=str(tmp_path / "password"))
