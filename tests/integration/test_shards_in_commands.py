"""Commands on the Redis of several shards: what is on each, and what is on one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from typer.testing import CliRunner

from redbatch.commands import app
from shared.keys import API_KEYS
from tests.servers import Server
from tests.users import as_user

pytestmark = pytest.mark.redis

Run = Callable[..., Any]


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """Two Redis."""
    with Server() as one, Server() as two:
        yield [one, two]


@pytest.fixture
def run(servers: list[Server], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `redbatch` with arguments on both."""
    monkeypatch.delenv("REDBATCH_REDIS_URL", raising=False)
    monkeypatch.setenv("REDBATCH_REDIS_SHARDS", ",".join(as_user(each.url, "admin") for each in servers))
    monkeypatch.setenv("COLUMNS", "160")
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def key_ids(server: Server) -> list[str]:
    """Returns the ids of the API keys in a Redis."""
    with redis.Redis.from_url(server.url, protocol=2, decode_responses=True) as client:
        names: Any = client.hkeys(API_KEYS)
    return [each for each in names if len(each) > 8]


def test_a_key_is_on_each_shard(run: Run, servers: list[Server]) -> None:
    """It is listed once, and revoked everywhere."""
    created = run("keys", "create", "--json")
    key_id = json.loads(created.stdout)["id"]
    assert [key_ids(each) for each in servers] == [[key_id]] * 2
    assert [json.loads(line)["id"] for line in run("keys", "list", "--json").stdout.splitlines()] == [key_id]
    assert run("keys", "revoke", key_id).exit_code == 0
    assert [key_ids(each) for each in servers] == [[], []]
    assert run("keys", "revoke", key_id).exit_code == 1


def test_a_key_is_not_revoked_until_no_shard_has_it(run: Run, servers: list[Server]) -> None:
    """While a Redis is away, that is a failure which says so, and no key is created."""
    key_id = json.loads(run("keys", "create", "--json").stdout)["id"]
    servers[1].stop()
    revoked = run("keys", "revoke", key_id)
    assert revoked.exit_code == 1
    assert "may still be valid" in revoked.stderr
    assert str(servers[1].port) in revoked.stderr
    assert key_ids(servers[0]) == []
    assert run("keys", "create").exit_code == 1
    assert key_ids(servers[0]) == [], "no Redis has a new key"


def test_keys_are_copied_to_a_new_redis(run: Run, servers: list[Server]) -> None:
    """By the command in docs/redis.md."""
    key_id = json.loads(run("keys", "create", "--json").stdout)["id"]
    with Server() as new, redis.Redis.from_url(servers[0].url, protocol=2) as client:
        password = urlsplit(new.url).password
        login = ["AUTH2", urlsplit(new.url).username, password] if password else []
        client.execute_command("MIGRATE", "127.0.0.1", str(new.port), API_KEYS, "0", "5000", "COPY", *login)
        assert key_ids(new) == key_ids(servers[0]) == [key_id]


def test_a_command_that_reads_one_redis_says_so(run: Run) -> None:
    """Instead of showing a part of the queue as all of it."""
    result = run("dead", "list")
    assert result.exit_code == 1
    assert "--redis-url" in result.stderr
