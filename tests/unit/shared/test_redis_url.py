"""URLs of Redis: right ones, and what is wrong with others."""

from __future__ import annotations

import pytest

from shared.process.settings import read_settings
from shared.redis_url import NOT_ENCODED, find_url_problem
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
        ("redis+sentinel://:s3cr@a:26379,b:26379/mymaster/0", "it takes a URL that begins with redis://"),
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
