"""URLs of Redis: right ones, and what is wrong with others."""

from __future__ import annotations

import pytest

from shared.process.settings import read_settings
from shared.redis_url import NOT_ENCODED, Address, Kind, RedisUrl, find_url_problem, mask_password, parse_url
from shared.settings import QueueSettings

PASSWORD = "s3cr"
"""The part of each password below that no message may contain."""


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis:///0",
        "redis://redis_1.example:6379/",
        "redis://user:s3cr%2F%3F@redis:6379/15",
        "redis://:s3cr@et:100%@redis:6379/0",
        "rediss://[fd00::1]:6380/0",
        "redis://redis?db=3&username=user&password=s3cr@t",
        "unix:///run/redis.sock",
        "unix://user:s3cr@/run/redis.sock?db=1",
        "redis+sentinel://a/mymaster",
        "redis+sentinel://user:s3cr@a,b:26380,[fd00::1]/my-master.1/2",
        "rediss+sentinel://:s3cr@a:26379,b:26379,c:26379/mymaster/0",
        "redis+cluster://a",
        "redis+cluster://a?shard=1/3",
        "redis+cluster://a?username=u&shard=1/3",
        "rediss+cluster://:s3cr@a:7000,b/0",
    ],
)
def test_a_right_url_is_taken(url: str) -> None:
    """With and without a port, a user, a password and a database."""
    assert find_url_problem(url) == ""


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("localhost:6379", "it takes a URL that begins with redis://"),
        ("user:s3cr@localhost:6379", "it takes a URL that begins with redis://"),
        ("http://redis:6379", "it takes a URL that begins with redis://"),
        ("sentinel://:s3cr@a:26379,b:26379/mymaster/0", "it takes a URL that begins with redis://"),
        ("redis+sentinel://:s3cr@a,b", "after its hosts, it takes the name of the master"),
        ("redis+sentinel://:s3cr@a,b/", "after its hosts, it takes the name of the master"),
        ("redis+sentinel://:s3cr@a,b/mymaster/cache", "after its hosts, it takes the name of the master"),
        ("redis+sentinel://:s3cr@a,,b/mymaster", "one of its hosts is empty"),
        ("redis+sentinel:///mymaster", "one of its hosts is empty"),
        ("redis+sentinel://a,b:port/mymaster", "its port is not a number from 1 to 65535"),
        ("redis+cluster://:s3cr@a,b/1", "a Redis Cluster has only database 0"),
        ("redis://a?shard=1/3", "its only options are"),
        ("redis://a?%70assword=s3cr", "its only options are"),
        ("redis+cluster://a?shard=1", "its only options are"),
        ("redis+cluster://a?shard=3/3", "its shard is not a number from 0 on"),
        ("redis+cluster://:s3cr@a,b?db=1", "a Redis Cluster has only database 0"),
        ("redis+cluster://a,my b", "its host is no name"),
        ("redis://:s3cr@a:6379,b:6379/0", "it takes one host"),
        ("redis://a,b", "it takes one host"),
        ("redis://redis:66000/0", "its port is not a number from 1 to 65535"),
        ("redis://redis:0/0", "its port is not a number from 1 to 65535"),
        ("redis://redis:port/0", "its port is not a number from 1 to 65535"),
        ("redis://my redis:6379/0", "its host is no name"),
        ("redis://[fd00::zz]:6379/0", "its host is no name"),
        ("redis://redis:6379/cache", "its database, after the slash, is not a number"),
        ("redis://redis:6379/0/1", "its database, after the slash, is not a number"),
        ("redis://redis?db=cache", "its db is not a number"),
        ("redis://redis/0?s3cr_timeout=1", "its only options are db, username, password"),
        ("rediss://redis/0?ssl_cert_reqs=none", "ssl_ options are not supported: use --redis-tls-ca,"),
        ("redis://:s3cr/et@redis:6379/0", NOT_ENCODED),
        ("redis://:6379/s3cr@redis:6379/0", NOT_ENCODED),
        ("redis://:12?s3cr@redis:6379/0", NOT_ENCODED),
        ("redis://:12?s3cr@redis:6379/0?db=1", NOT_ENCODED),
        ("redis://:s3cr#et@redis:6379/0", NOT_ENCODED),
        ("redis://:s3cr[et@redis:6379/0", NOT_ENCODED),
        ("redis://:s3cr\tet@redis:6379/0", "it has a control character"),
        ("unix://run/redis.sock", "it takes the path of a socket"),
        ("unix://:s3cr@", "it takes the path of a socket"),
    ],
)
def test_a_wrong_url_is_one_line_without_the_password(
    url: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process ends with code 2, and says what to mend."""
    with pytest.raises(SystemExit) as left:
        read_settings(QueueSettings, {"redis_url": url})
    printed = "".join(capsys.readouterr())
    assert left.value.code == 2
    assert printed.startswith(f"redbatch: --redis-url (REDBATCH_REDIS_URL): {problem}")
    assert printed.count("\n") == 1
    assert PASSWORD not in printed


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("redis://:s3cr@a/1", RedisUrl(Kind.SERVER, (Address("a", 6379),), "redis://:s3cr@a/1")),
        ("unix:///run/redis.sock", RedisUrl(Kind.SERVER, (), "unix:///run/redis.sock")),
        (
            "rediss+sentinel://u:s3cr@a,[fd00::1]:1/mymaster/2?db=3",
            RedisUrl(
                Kind.SENTINEL,
                (Address("a", 26379), Address("fd00::1", 1)),
                "rediss://u:s3cr@a:26379/2?db=3",
                "mymaster",
            ),
        ),
        ("redis+sentinel://a/m", RedisUrl(Kind.SENTINEL, (Address("a", 26379),), "redis://a:26379", "m")),
        (
            "redis+cluster://a:7000,b",
            RedisUrl(Kind.CLUSTER, (Address("a", 7000), Address("b", 6379)), "redis://a:7000"),
        ),
    ],
)
def test_a_url_names_servers(url: str, parsed: RedisUrl) -> None:
    """The user, the password and the database are those of Redis, not of sentinels."""
    assert parse_url(url) == parsed


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
