"""Commands on the Redis of several shards: what is on each, what is on one of them, and one that does not answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from typer.testing import CliRunner

from redbatch.commands import app
from shared.keys import API_KEYS
from tests.integration.test_dead import give_up
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
    created = run("keys", "create")
    assert (created.exit_code, created.stdout) == (1, "")
    assert [str(each.port) in created.stderr for each in servers] == [False, True]
    assert key_ids(servers[0]) == [], "no Redis has a new key"


def test_keys_are_listed_from_the_shards_that_answer(run: Run, servers: list[Server]) -> None:
    """Those that do not are named. One that has come back empty has no keys, but the one that is away may have some."""
    key_id = json.loads(run("keys", "create", "--json").stdout)["id"]
    servers[1].stop()
    listed = run("keys", "list", "--json")
    assert (listed.exit_code, [json.loads(line)["id"] for line in listed.stdout.splitlines()]) == (0, [key_id])
    assert [str(each.port) in listed.stderr for each in servers] == [False, True]
    assert "shard 1" in listed.stderr
    with redis.Redis.from_url(servers[0].url, protocol=2) as client:
        client.delete(API_KEYS)
    listed = run("keys", "list")
    assert (listed.exit_code, listed.stdout, str(servers[1].port) in listed.stderr) == (0, "", True)
    servers[0].stop()
    listed = run("keys", "list")
    assert (listed.exit_code, listed.stdout) == (1, "")
    assert all(str(each.port) in listed.stderr for each in servers)


def test_keys_are_copied_to_a_new_redis(run: Run, servers: list[Server]) -> None:
    """By the command in docs/redis.md."""
    key_id = json.loads(run("keys", "create", "--json").stdout)["id"]
    with Server() as new, redis.Redis.from_url(servers[0].url, protocol=2) as client:
        password = urlsplit(new.url).password
        login = ["AUTH2", urlsplit(new.url).username, password] if password else []
        client.execute_command("MIGRATE", "127.0.0.1", str(new.port), API_KEYS, "0", "5000", "COPY", *login)
        assert key_ids(new) == key_ids(servers[0]) == [key_id]


@pytest.fixture
def dead(run: Run, servers: list[Server], queue_name: str) -> Run:
    """Runs `redbatch dead` with arguments, on a queue with two dead letters on each shard, by turns."""
    for number in range(4):
        asyncio.run(give_up(servers[number % 2].url, queue_name, [f"text {number}"], 1))
    return lambda command, *arguments: run("dead", command, "--queue", queue_name, *arguments)


def list_ids(dead: Run) -> list[str]:
    """Returns the ids that `list --json` prints, newest first."""
    return [json.loads(line)["id"] for line in dead("list", "--json").stdout.splitlines()]


def test_dead_letters_of_all_shards_are_listed(dead: Run) -> None:
    """The newest first, with the total of all; the id of one names its shard, and `show` takes it."""
    ids = list_ids(dead)
    assert [each.partition("@")[0] if "@" in each else "0" for each in ids] == ["1", "0", "1", "0"]
    result = dead("list", "--most", "3")
    assert all(each in result.output for each in (*ids[:3], "4 dead letters", "and 1 older"))
    assert ids[3] not in result.output
    for number, letter_id in zip((3, 2), ids[:2], strict=True):
        shown = json.loads(dead("show", letter_id, "--show-text", "--json").output)
        assert (shown["id"], shown["texts"]) == (letter_id, [f"text {number}"])
    for unknown in ("2@1-1", "1@1-1", "1@", "1-1"):
        result = dead("show", unknown)
        assert (result.exit_code, "no such dead letter" in result.stderr) == (1, True)


def test_dead_letters_are_deleted_on_their_shards(dead: Run) -> None:
    """By their ids, of which one that does not exist is an error, or all."""
    ids = list_ids(dead)
    result = dead("purge", ids[0], ids[1], "2@1-1", "--yes")
    assert (result.exit_code, list_ids(dead)) == (1, ids[2:])
    assert "1 of these ids do not exist" in result.stderr
    assert "deleted: 2" in result.output
    assert dead("purge", "--all", "--yes").exit_code == 0
    assert list_ids(dead) == []


def test_a_shard_that_does_not_answer_is_no_shard_without_letters(dead: Run, servers: list[Server]) -> None:
    """Commands that change say so with exit code 1, and do the rest; the list says so."""
    ids = list_ids(dead)
    servers[1].stop()
    listed = dead("list")
    assert listed.exit_code == 0
    assert ids[1] in listed.output
    place = f"127.0.0.1:{servers[1].port}"
    for result in (
        dead("show", ids[0]),
        dead("requeue", ids[0], "--timeout-s", "0.2"),
        dead("requeue", "--all", "--timeout-s", "0.2"),
        dead("purge", ids[0], ids[1], "--yes"),
        dead("purge", "--all", "--yes"),
    ):
        assert (result.exit_code, place in result.output, "Traceback" in result.output) == (1, True, False), result
    assert place in listed.stderr
    assert list_ids(dead) == []
    servers[1].start()


def test_leases_are_on_the_first_shard(run: Run, servers: list[Server]) -> None:
    """Another Redis that is away does not matter to them; without the first, they cannot be read."""
    servers[1].stop()
    result = run("leases")
    assert (result.exit_code, result.stdout) == (0, "no live worker shares GPUs by leases (--gpu-lease)\n")
    servers[0].stop()
    result = run("leases")
    assert result.exit_code == 1
    assert str(servers[0].port) in result.stderr
    assert str(servers[1].port) not in result.stderr
