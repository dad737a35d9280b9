"""Settings that gateways and workers share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from shared.settings import QueueSettings, public_model


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


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("minilm", "minilm"),
        ("sentence-transformers/all-mpnet-base-v2", "sentence-transformers/all-mpnet-base-v2"),
        ("squares:Squares", "squares:Squares"),
        ("/srv/models/my-model/", "my-model"),
        ("./my-model", "my-model"),
        ("~/models/my-model", "my-model"),
        ("models/of/mine", "mine"),
    ],
)
def test_clients_see_no_folders_of_a_model(name: str, public: str) -> None:
    """A path of the worker's machine says who runs it and where; a name of the hub has one slash."""
    assert public_model(name) == public


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
