"""The Redis users on a real Redis: their rights, and changes of passwords without an interruption."""

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
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.gateway.gateway_cluster import GatewayCluster, null_vector, vector_bytes
from tests.integration.gateway.gateway_cluster import GatewayProcess as Serving
from tests.integration.queue.actors import Gateway, request
from tests.processes import Processes
from tests.servers import Server
from tests.users import as_user, suite_acl
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

Secrets = dict[str, dict[str, str]]

Q = "rb:{minilm}:"
LANE = f"{Q}q:interactive"
READ_RO = f"EVAL_RO return('a') 1 {LANE}"

ALLOWED = {
    "gateway": [
        f"XADD {LANE} * a b",
        f"XDEL {LANE} 1-1",
        f"BLPOP {Q}reply:a 1",
        f"XREVRANGE {Q}dead + - COUNT 5",
        f"XDEL {Q}dead 1-1",
        f"HGETALL {Q}job:a",
        f"GET {Q}worker:a",
        "HMGET rb:keys a",
        "ZREVRANGE rb:queues 0 -1",
        f"EVALSHA {scripts.SUBMIT.sha} 2 {Q}backlog {LANE}",
        f"EVALSHA_RO {scripts.QUEUE_STATS.sha} 1 {Q}workers",
        "HSET rb:{usage:all}:hour:1 a b",
        "HGETALL rb:keys",
        f"EVALSHA_RO {scripts.LEASE_STATUS.sha} 1 rb:{{gpu:host}}:slot:0",
        f"EVALSHA_RO {scripts.DEAD_LIST.sha} 1 {Q}dead",
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
        "HSET rb:{usage:all}:hour:1 a b",
        "CLIENT UNBLOCK 1",
        "INFO replication",
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
        "HGETALL rb:{usage:all}:hour:1",
        "SCAN 0",
        "INFO",
        "SLOWLOG GET 5",
        "CLIENT LIST",
        READ_RO,
    ],
    "admin": [
        "HSET rb:keys a b",
        "HDEL rb:keys a",
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

DENIED = {
    "gateway": [
        "HSET rb:keys a b",
        "HDEL rb:keys a",
        f"EVALSHA {scripts.SUBMIT.sha} 1 rb:keys",
        f"SET {Q}worker:a b",
        f"ZADD {Q}workers 1 a",
        "ZADD rb:queues 1 a",
        f"XTRIM {Q}dead MAXLEN 0",
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
        f"XGROUP DESTROY {LANE} workers",
        f"XGROUP SETID {LANE} workers 0",
        f"EVALSHA {scripts.COMMIT.sha} 1 rb:keys",
        "CONFIG GET maxmemory-policy",
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
        "HSET rb:{usage:all}:hour:1 a b",
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
    """A Redis with the users of Redbatch, even if the suite runs without them."""
    with Server(users=True) as server:
        yield server


@pytest.fixture
def users(
    server_version: tuple[int, ...], needs_redis: Callable[[str], None], request: pytest.FixtureRequest
) -> Server:
    """The same server; skips before Redis 7.0, which has no read-only keys."""
    needs_redis("7.0")
    server: Server = request.getfixturevalue("server")
    return server


@pytest.mark.parametrize("user", [user.name for user in USERS])
def test_what_a_user_may_do(users: Server, user: str) -> None:
    """ACL DRYRUN allows every command that the user sends."""
    with redis.Redis.from_url(users.url, protocol=2) as observer:
        replies: dict[str, Any] = {
            command: observer.execute_command("ACL DRYRUN", user, *command.split()) for command in ALLOWED[user]
        }
    assert replies == dict.fromkeys(ALLOWED[user], b"OK")


@pytest.mark.parametrize("user", [user.name for user in USERS])
def test_what_a_user_may_not_do(users: Server, user: str) -> None:
    """ACL DRYRUN denies commands that harm the server, rights of other users, and foreign keys."""
    denied = [*DENIED[user], *DENIED_TO_ALL]
    with redis.Redis.from_url(users.url, protocol=2) as observer:
        replies: dict[str, Any] = {
            command: observer.execute_command("ACL DRYRUN", user, *command.split()) for command in denied
        }
    assert [command for command, answer in replies.items() if b"no permissions" not in answer] == []


def test_a_gateway_may_run_only_the_blocking_commands_it_needs(users: Server) -> None:
    """Of the category @blocking, which includes WAITAOF, a gateway may run only BLPOP, WAITAOF and WAIT."""
    with redis.Redis.from_url(users.url, protocol=2) as observer:
        blocking: Any = observer.acl_cat("blocking")
        names = {each.lower() for each in blocking}
        allowed = {
            name
            for name in names - {"waitaof", "wait"}  # Redis 7.0 lacks WAITAOF, and WAIT is not in its category
            if b"no permissions" not in observer.execute_command("ACL DRYRUN", "gateway", name, *_arguments(name))
        }
    assert allowed == {"blpop"}


def _arguments(command: str) -> list[str]:
    """Returns valid arguments of a command, with keys of a gateway."""
    key = f"{Q}reply:a"
    stream = ["STREAMS", LANE, ">"]
    multiple_keys = ["1", "1", key]
    special = {
        "xread": stream,
        "xreadgroup": ["GROUP", "workers", "a", *stream],
        "blmove": [key, key, "LEFT", "LEFT", "1"],
        "brpoplpush": [key, key, "1"],
        "blmpop": [*multiple_keys, "LEFT"],
        "bzmpop": [*multiple_keys, "MIN"],
    }
    return special.get(command, [key, "1"])


def test_unauthenticated_clients_are_refused(users: Server) -> None:
    """A client without a user, or with a wrong password, may not even send PING."""
    without_user = f"redis://127.0.0.1:{users.port}/0"
    wrong_password = f"redis://gateway:wrong@127.0.0.1:{users.port}/0"
    for url in (without_user, wrong_password):
        with redis.Redis.from_url(url, protocol=2) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


async def test_entries_survive_a_restart(needs_redis: Callable[[str], None], queue_name: str) -> None:
    """With users, Redis replays an append-only file that scripts have written, without denials."""
    needs_redis("7.0")
    with Server(options=["--appendonly", "yes", "--appendfsync", "always"], users=True) as server:
        queue = QueueConnections(QueueSettings(redis_url=as_user(server.url, "gateway")), queue_name, "test")
        try:
            refs = await Gateway(queue.connection("submit"), queue.keys).add(request(entries=3))
            os.kill(server.pid, signal.SIGKILL)
            await wait_until(lambda: not server.is_running(), "the server is dead")
            await asyncio.to_thread(server.start)
            await wait_until(lambda: has_loaded_its_file(server), "Redis has loaded its file")
            assert await producer.cancel(queue.connection("cancel"), queue.keys, refs, ()) == 3
        finally:
            await queue.close()


def has_loaded_its_file(server: Server) -> bool:
    """Returns whether a restarted Redis has loaded its file and answers."""
    try:
        with redis.Redis.from_url(server.url, protocol=2) as client:
            return bool(client.ping())
    except redis.BusyLoadingError:
        return False


def run_redbatch(url: str, *arguments: str) -> tuple[int, str]:
    """Runs `redbatch` on a Redis; returns the exit code and the error line."""
    result = CliRunner().invoke(app, [*arguments, "--redis-url", url])
    return result.exit_code, result.stderr.strip()


def test_the_command_line_as_ops(users: Server) -> None:
    """As ops, read-only commands work, even before any gateway has started; others fail with one line."""
    ops = as_user(users.url, "ops")
    for arguments in (["queue"], ["leases"], ["dead", "list"], ["jobs", "list"], ["keys", "list"]):
        assert run_redbatch(ops, *arguments) == (0, "")
    for arguments in (["keys", "create"], ["dead", "purge", "1-1", "--yes"]):
        code, line = run_redbatch(ops, *arguments)
        assert (code, line.count("\n")) == (1, 0)
        assert line.startswith("redbatch: redis://ops:***@127.0.0.1")
        assert "NOPERM" in line
    with redis.Redis.from_url(users.url, protocol=2) as observer:
        observer.acl_log_reset()


def test_the_command_line_with_a_wrong_password(users: Server) -> None:
    """The error line has the reason of Redis, and not the password."""
    code, line = run_redbatch(f"redis://admin:wrong@127.0.0.1:{users.port}/0", "keys", "list")
    masked_url = f"redis://admin:***@127.0.0.1:{users.port}/0"
    assert (code, line) == (1, f"redbatch: {masked_url}: Redis refuses the user or its password.")


def create_secrets(*arguments: str) -> Secrets:
    """Returns the output of `redbatch k8s secrets`, by the names of the secrets."""
    text = CliRunner().invoke(app, ["k8s", "secrets", *arguments]).stdout
    return {each["metadata"]["name"]: each.get("stringData", {}) for each in yaml.safe_load_all(text)}


def url_at(server: Server, url: str) -> str:
    """Returns the URL of a secret with the address of this server."""
    return re.sub(r"@.*", f"@127.0.0.1:{server.port}/0", url)


def can_log_in(server: Server, url: str) -> bool:
    """Returns whether the URL of a secret is accepted."""
    try:
        with client_at(url_at(server, url)) as client:
            client.execute_command("TIME")
    except redis.AuthenticationError:
        return False
    return True


def load_acl(server: Server, secrets: Secrets, admin: str) -> None:
    """Loads a new ACL file into Redis, as the admin of the URL."""
    text = secrets["redis-users"]["users.acl"] + suite_acl().splitlines()[-1] + "\n"  # with the observer
    (Path(str(server.directory)) / "users.acl").write_text(text, encoding="utf-8")
    with client_at(url_at(server, admin)) as client:
        assert client.acl_load()


def client_at(url: str) -> redis.Redis:
    """Returns a client that does not send CLIENT SETINFO (Redis 7.2), which no user may run."""
    return redis.Redis.from_url(url, protocol=2, driver_info=None)


@asynccontextmanager
async def continuous_requests(gateway: Serving) -> AsyncIterator[None]:
    """Sends requests one after another during the block; each answer must be correct."""
    stop = asyncio.Event()
    correct: list[bool] = []

    async def send_requests() -> None:
        while not stop.is_set():
            text = f"text {len(correct)}"
            answer = await asyncio.to_thread(gateway.embed, {"text": text})
            correct.append(answer.status_code == 200 and vector_bytes(answer.json()["embedding"]) == null_vector(text))

    sender = asyncio.create_task(send_requests())
    await wait_until(lambda: len(correct) > 2, "some requests are answered")
    yield
    num_before = len(correct)
    await wait_until(lambda: len(correct) > num_before + 5, "more requests are answered")
    stop.set()
    await sender
    assert all(correct)


async def test_passwords_change_without_an_interruption(
    needs_redis: Callable[[str], None], tmp_path: Path, queue_name: str
) -> None:
    """New passwords are added, then old ones removed, by loading ACL files into a running Redis; no request fails."""
    needs_redis("7.0")
    with Server(users=True) as server:
        old, secret_names = tmp_path / "old.acl", ("gateway-redis", "worker-redis", "ops-redis", "admin-redis")
        first = create_secrets()
        load_acl(server, first, as_user(server.url, "admin"))
        async with Processes(tmp_path) as processes:
            cluster = GatewayCluster(processes, server.url, queue_name)
            urls = [url_at(server, first[f"{name}-redis"]["url"]) for name in ("gateway", "worker")]
            gateway, _ = await asyncio.gather(
                cluster.start_gateway(redis_url=urls[0]), cluster.start_worker(redis_url=urls[1])
            )
            await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
            async with continuous_requests(gateway):
                old.write_text(first["redis-users"]["users.acl"], encoding="utf-8")
                second = create_secrets("--keep", str(old))
                load_acl(server, second, first["admin-redis"]["url"])
            assert [can_log_in(server, each[name]["url"]) for name in secret_names for each in (first, second)] == [
                True
            ] * 8
            urls = [url_at(server, second[f"{name}-redis"]["url"]) for name in ("gateway", "worker")]
            later, _ = await asyncio.gather(
                cluster.start_gateway(redis_url=urls[0]), cluster.start_worker(redis_url=urls[1])
            )
            await wait_until(lambda: later.missing() == [], "the new gateway sees a worker")
            async with continuous_requests(later):
                old.write_text(second["redis-users"]["users.acl"], encoding="utf-8")
                load_acl(server, create_secrets("--drop-old", str(old)), second["admin-redis"]["url"])
            assert not any(can_log_in(server, first[name]["url"]) for name in secret_names)
            assert all(can_log_in(server, second[name]["url"]) for name in secret_names)
