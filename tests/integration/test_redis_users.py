"""The users of Redis, on a Redis: what each may do and may not, and passwords that change while all goes on."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from typer.testing import CliRunner

from redbatch.commands import app
from redbatch.redis_users.rules import USERS
from shared import producer, scripts
from shared.connection import QueueConnections
from shared.settings import QueueSettings
from tests.integration.gateway.gateway_cluster import Gateway as Serving
from tests.integration.gateway.gateway_cluster import House, digits, digits_of
from tests.integration.queue.actors import Gateway, request
from tests.processes import Processes
from tests.servers import Server
from tests.users import as_user, suite_acl
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

Made = dict[str, dict[str, str]]

Q = "rb:{minilm}:"
LANE = f"{Q}q:interactive"
READ_RO = f"EVAL_RO return('a') 1 {LANE}"

MAY = {
    "gateway": [
        f"XADD {LANE} * a b",
        f"XDEL {LANE} 1-1",
        f"BLPOP {Q}reply:a 1",
        f"HGETALL {Q}job:a",
        f"GET {Q}worker:a",
        "HMGET rb:keys a",
        "ZREVRANGE rb:queues 0 -1",
        f"EVALSHA {scripts.SUBMIT.sha} 2 {Q}backlog {LANE}",
        f"EVALSHA_RO {scripts.QUEUE_STATS.sha} 1 {Q}workers",
        "CLIENT KILL ID 1 ADDR a:1",
        "CLIENT SETNAME a",
        "WAIT 1 1",
        "INFO memory",
    ],
    "worker": [
        f"XREADGROUP GROUP workers a STREAMS {LANE} >",
        f"XACK {LANE} workers 1-1",
        f"XGROUP CREATE {LANE} workers 0 MKSTREAM",
        f"RPUSH {Q}reply:a b",
        f"XADD {Q}dead * a b",
        f"SET {Q}worker:a b",
        f"ZADD {Q}workers 1 a",
        "ZADD rb:queues 1 a",
        "SET rb:{gpu:host}:slot:0 a",
        "CLIENT UNBLOCK 1",
    ],
    "keda": ["PING", f"XLEN {LANE}", f"XLEN {Q}q:bulk", "HELLO 3 AUTH keda a"],
    "ops": [
        f"XLEN {LANE}",
        f"XRANGE {LANE} - +",
        f"XINFO STREAM {LANE} FULL",
        f"XINFO GROUPS {LANE}",
        f"XINFO CONSUMERS {LANE} workers",
        f"XPENDING {LANE} workers IDLE 3000 - + 10",
        f"XREVRANGE {Q}dead + - COUNT 5",
        f"MEMORY USAGE {LANE}",
        f"HGETALL {Q}backlog",
        f"HGETALL {Q}tenants",
        f"GET {Q}worker:a",
        f"TTL {Q}worker:a",
        f"TYPE {LANE}",
        "HGETALL rb:keys",
        "ZRANGE rb:queues 0 -1",
        "GET rb:{gpu:host}:fence",
        "SCAN 0",
        "INFO",
        "SLOWLOG GET 5",
        "CLIENT LIST",
        READ_RO,
    ],
    "admin": [
        "HSET rb:keys a b",
        "HDEL rb:keys a",
        f"XDEL {Q}dead 1-1",
        f"XTRIM {Q}dead MAXLEN 0",
        f"EVALSHA {scripts.REQUEUE.sha} 3 {Q}backlog {Q}dead {LANE}",
        f"BLPOP {Q}reply:a 1",
        f"XLEN {LANE}",
        "ACL LOAD",
        "ACL LOG",
        "CLIENT LIST",
        "SCRIPT KILL",
    ],
    "probe": ["PING"],
}

DENIED_TO_ALL = [
    *("FLUSHALL", "FLUSHDB", "KEYS *", "CONFIG SET maxmemory 1", "CONFIG GET requirepass", "MONITOR", "SHUTDOWN"),
    *("DEBUG SLEEP 1", "SELECT 1", "ACL SETUSER a on", "ACL LIST", "ACL SAVE", "SCRIPT FLUSH", "FUNCTION LIST"),
    *(
        "REPLICAOF a 1",
        "SAVE",
        "BGREWRITEAOF",
        "MIGRATE a 1 b 0 1",
        "PUBLISH a b",
        "SUBSCRIBE a",
        "GET other",
        "DEL other",
    ),
]

MAY_NOT = {
    "gateway": [
        "HSET rb:keys a b",
        "HDEL rb:keys a",
        f"EVALSHA {scripts.SUBMIT.sha} 1 rb:keys",
        f"SET {Q}worker:a b",
        f"ZADD {Q}workers 1 a",
        "ZADD rb:queues 1 a",
        f"XDEL {Q}dead 1-1",
        f"XREADGROUP GROUP workers a STREAMS {LANE} >",
        f"XGROUP DESTROY {LANE} workers",
        "SET rb:{gpu:host}:slot:0 a",
        f"BRPOP {Q}reply:a 1",
        "XADD other * a b",
        "CLIENT LIST",
        "SCAN 0",
    ],
    "worker": [
        "HSET rb:keys a b",
        "HGETALL rb:keys",
        f"SET {Q}cache a",
        f"HGETALL {Q}tenants",
        f"GET {Q}submitted:a",
        f"HGETALL {Q}idempotency:a",
        f"XGROUP DESTROY {LANE} workers",
        f"XGROUP SETID {LANE} workers 0",
        f"EVALSHA {scripts.COMMIT.sha} 1 rb:keys",
        "INFO",
        "SCAN 0",
    ],
    "keda": [
        f"XADD {LANE} * a b",
        f"XRANGE {LANE} - +",
        f"XREAD STREAMS {LANE} 0",
        f"XLEN {Q}dead",
        "INFO",
        "CLIENT LIST",
        READ_RO,
    ],
    "ops": [
        f"XDEL {LANE} 1-1",
        f"XADD {LANE} * a b",
        f"XTRIM {Q}dead MAXLEN 0",
        f"XACK {LANE} workers 1-1",
        f"SET {Q}epoch a",
        f"DEL {LANE}",
        f"EXPIRE {LANE} 1",
        "HSET rb:keys a b",
        f"EVAL return('a') 1 {LANE}",
        f"EVALSHA {scripts.SUBMIT.sha} 1 {LANE}",
        f"XGROUP DESTROY {LANE} workers",
        f"LRANGE {Q}reply:a 0 -1",
        f"HSET {Q}cache:0 a b",
        "CLIENT KILL ID 1",
        "ACL LOAD",
        "SLOWLOG RESET",
        "LATENCY RESET",
    ],
    "admin": [
        f"SET {Q}worker:a b",
        "SET rb:{gpu:host}:slot:0 a",
        f"DEL {Q}epoch",
        f"HSET {Q}tenants a b",
        "CLIENT KILL ID 1",
        f"XREADGROUP GROUP workers a STREAMS {LANE} >",
    ],
    "probe": ["ECHO a", "INFO", f"XLEN {LANE}", "GET rb:queues", "CLIENT SETNAME a", "TIME", "EVAL return(1) 0"],
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A Redis with these users, whatever the suite runs under."""
    with Server(users=True) as server:
        yield server


@pytest.fixture
def users(
    server_version: tuple[int, ...], needs_redis: Callable[[str], None], request: pytest.FixtureRequest
) -> Server:
    """The same, unless Redis is too old: it knows no keys that may only be read."""
    needs_redis("7.0")
    found: Server = request.getfixturevalue("server")
    return found


@pytest.mark.parametrize("user", [user.name for user in USERS])
def test_what_a_user_may_do(users: Server, user: str) -> None:
    """As Redis judges it, of each thing that it does."""
    with redis.Redis.from_url(users.url, protocol=2) as observer:
        said: dict[str, Any] = {each: observer.execute_command("ACL DRYRUN", user, *each.split()) for each in MAY[user]}
    assert said == dict.fromkeys(MAY[user], b"OK")


@pytest.mark.parametrize("user", [user.name for user in USERS])
def test_what_a_user_may_not_do(users: Server, user: str) -> None:
    """Neither what harms all, nor what another's part is, nor anything with keys that are not Redbatch's."""
    denied = [*MAY_NOT[user], *DENIED_TO_ALL]
    with redis.Redis.from_url(users.url, protocol=2) as observer:
        said: dict[str, Any] = {each: observer.execute_command("ACL DRYRUN", user, *each.split()) for each in denied}
    assert [each for each, answer in said.items() if b"no permissions" not in answer] == []


def test_of_what_blocks_a_gateway_has_what_it_needs(users: Server) -> None:
    """WAITAOF comes with the category of what blocks; WAIT it has anyway, and nothing else of these."""
    with redis.Redis.from_url(users.url, protocol=2) as observer:
        blocking: Any = observer.acl_cat("blocking")
        names = {each.lower() for each in blocking}
        may = {
            name
            for name in names - {"waitaof", "wait"}  # Redis 7.0 does not know the one, nor counts in the other
            if b"no permissions" not in observer.execute_command("ACL DRYRUN", "gateway", name, *_arguments(name))
        }
    assert may == {"blpop"}


def _arguments(command: str) -> list[str]:
    """Returns arguments that make sense to a command, of keys that a gateway has."""
    key = f"{Q}reply:a"
    stream = ["STREAMS", LANE, ">"]
    several = ["1", "1", key]
    special = {
        "xread": stream,
        "xreadgroup": ["GROUP", "workers", "a", *stream],
        "blmove": [key, key, "LEFT", "LEFT", "1"],
        "brpoplpush": [key, key, "1"],
        "blmpop": [*several, "LEFT"],
        "bzmpop": [*several, "MIN"],
    }
    return special.get(command, [key, "1"])


def test_who_has_no_name_gets_nothing(users: Server) -> None:
    """Nor does a wrong password."""
    nobody = f"redis://127.0.0.1:{users.port}/0"
    wrong = f"redis://gateway:wrong@127.0.0.1:{users.port}/0"
    for url in (nobody, wrong):
        with redis.Redis.from_url(url, protocol=2) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


async def test_what_was_written_survives_a_restart(needs_redis: Callable[[str], None], queue_name: str) -> None:
    """With an append-only file: Redis itself, when it reads that, is refused nothing, and scripts had written it."""
    needs_redis("7.0")
    with Server(options=["--appendonly", "yes", "--appendfsync", "always"], users=True) as server:
        queue = QueueConnections(QueueSettings(redis_url=as_user(server.url, "gateway")), queue_name, "test")
        try:
            refs = await Gateway(queue.connection("submit"), queue.keys).add(request(entries=3))
            os.kill(server.pid, signal.SIGKILL)
            await wait_until(lambda: not server.running(), "the server is dead")
            await asyncio.to_thread(server.start)
            await wait_until(lambda: has_read_its_file(server), "Redis has read its file")
            assert await producer.cancel(queue.connection("cancel"), queue.keys, refs, ()) == 3
        finally:
            await queue.close()


def has_read_its_file(server: Server) -> bool:
    """Whether a Redis that was started has come as far as it answers."""
    try:
        with redis.Redis.from_url(server.url, protocol=2) as client:
            return bool(client.ping())
    except redis.BusyLoadingError:
        return False


def asked(url: str, *arguments: str) -> tuple[int, str]:
    """Runs `redbatch` on a Redis; returns the exit code, and the one line that it complains in."""
    result = CliRunner().invoke(app, [*arguments, "--redis-url", url])
    return result.exit_code, result.stderr.strip()


def test_the_command_line_as_ops(users: Server) -> None:
    """What only looks works, also before any gateway has come; what changes is refused in a line."""
    ops = as_user(users.url, "ops")
    for words in (["queue"], ["dead", "list"], ["jobs", "list"], ["keys", "list"]):
        assert asked(ops, *words) == (0, "")
    for words in (["keys", "create"], ["dead", "purge", "1-1", "--yes"]):
        code, line = asked(ops, *words)
        assert (code, line.count("\n")) == (1, 0)
        assert line.startswith("redbatch: redis://ops:***@127.0.0.1")
        assert "NOPERM" in line
    with redis.Redis.from_url(users.url, protocol=2) as observer:
        observer.acl_log_reset()


def test_the_command_line_with_a_wrong_password(users: Server) -> None:
    """It says what Redis says, without the password."""
    code, line = asked(f"redis://admin:wrong@127.0.0.1:{users.port}/0", "keys", "list")
    where = f"redis://admin:***@127.0.0.1:{users.port}/0"
    assert (code, line) == (1, f"redbatch: {where}: Redis refuses the user or its password.")


def made(*arguments: str) -> Made:
    """Returns what `redbatch k8s secrets` prints, by the names of the secrets."""
    text = CliRunner().invoke(app, ["k8s", "secrets", *arguments]).stdout
    return {each["metadata"]["name"]: each.get("stringData", {}) for each in yaml.safe_load_all(text)}


def there(server: Server, url: str) -> str:
    """Returns a URL of a secret, for this server."""
    return re.sub(r"@.*", f"@127.0.0.1:{server.port}/0", url)


def opens(server: Server, url: str) -> bool:
    """Whether a URL of a secret gets somebody in."""
    try:
        with client_at(there(server, url)) as client:
            client.execute_command("TIME")
    except redis.AuthenticationError:
        return False
    return True


def load(server: Server, made: Made, admin: str) -> None:
    """Has Redis read a new file of users, as the admin of the URL."""
    text = made["redis-users"]["users.acl"] + suite_acl().splitlines()[-1] + "\n"  # and who looks on
    (Path(str(server.directory)) / "users.acl").write_text(text, encoding="utf-8")
    with client_at(there(server, admin)) as client:
        assert client.acl_load()


def client_at(url: str) -> redis.Redis:
    """Returns a client that does not tell Redis which library it is: nobody may (CLIENT SETINFO, Redis 7.2)."""
    return redis.Redis.from_url(url, protocol=2, driver_info=None)


@asynccontextmanager
async def answering(gateway: Serving) -> AsyncIterator[None]:
    """Asks a gateway one thing after another meanwhile; each answer must be right."""
    over = asyncio.Event()
    right: list[bool] = []

    async def ask() -> None:
        while not over.is_set():
            text = f"text {len(right)}"
            answer = await asyncio.to_thread(gateway.embed, {"text": text})
            right.append(answer.status_code == 200 and digits(answer.json()["embedding"]) == digits_of(text))

    asking = asyncio.create_task(ask())
    await wait_until(lambda: len(right) > 2, "some are answered")
    yield
    since = len(right)
    await wait_until(lambda: len(right) > since + 5, "more are answered")
    over.set()
    await asking
    assert all(right)


async def test_passwords_change_without_a_pause(
    needs_redis: Callable[[str], None], tmp_path: Path, queue_name: str
) -> None:
    """New ones beside the old, then without: each time Redis takes the file while it runs, and no request fails."""
    needs_redis("7.0")
    with Server(users=True) as server:
        old, opened = tmp_path / "old.acl", ("gateway-redis", "worker-redis", "ops-redis", "admin-redis")
        first = made()
        load(server, first, as_user(server.url, "admin"))
        async with Processes(tmp_path) as processes:
            house = House(processes, server.url, queue_name)
            urls = [there(server, first[f"{name}-redis"]["url"]) for name in ("gateway", "worker")]
            gateway, _ = await asyncio.gather(house.gateway(redis_url=urls[0]), house.worker(redis_url=urls[1]))
            await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
            async with answering(gateway):
                old.write_text(first["redis-users"]["users.acl"], encoding="utf-8")
                second = made("--keep", str(old))
                load(server, second, first["admin-redis"]["url"])
            assert [opens(server, each[name]["url"]) for name in opened for each in (first, second)] == [True] * 8
            urls = [there(server, second[f"{name}-redis"]["url"]) for name in ("gateway", "worker")]
            later, _ = await asyncio.gather(house.gateway(redis_url=urls[0]), house.worker(redis_url=urls[1]))
            await wait_until(lambda: later.missing() == [], "the new gateway sees a worker")
            async with answering(later):
                old.write_text(second["redis-users"]["users.acl"], encoding="utf-8")
                load(server, made("--drop-old", str(old)), second["admin-redis"]["url"])
            assert not any(opens(server, first[name]["url"]) for name in opened)
            assert all(opens(server, second[name]["url"]) for name in opened)
