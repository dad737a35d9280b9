"""RedisConnection: one connection, one call at a time, and no reply ever goes to the wrong call."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import pytest_asyncio
import redis.asyncio

from shared import consumer, producer
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.keys import Keys
from shared.producer import QueueBound
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.queue.actors import Gateway, Worker, request
from tests.proxy import FaultProxy, ReplyAction
from tests.servers import Server, Version
from tests.users import users_are_on
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]
USER = "observer"
MAX_BLOCK_S = 30
"""Of a pop that ends before, by a kill or otherwise."""


@pytest_asyncio.fixture
async def proxy(redis_url: str) -> AsyncIterator[FaultProxy]:
    """A faulty network between the test and its Redis."""
    async with FaultProxy(redis_url) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def proxied(proxy: FaultProxy, queue_name: str) -> AsyncIterator[QueueConnections]:
    """The test's queue through the proxy, for calls of which each ends at once, with a reply or a reset."""
    queue = QueueConnections(QueueSettings(redis_url=proxy.url, redis_timeout_s=20), queue_name, "proxied")
    yield queue
    await queue.close()


@pytest_asyncio.fixture
async def impatient(proxy: FaultProxy, queue_name: str) -> AsyncIterator[QueueConnections]:
    """The same, with a short timeout, for calls of which one gets no reply."""
    queue = QueueConnections(QueueSettings(redis_url=proxy.url, redis_timeout_s=1), queue_name, "proxied")
    yield queue
    await queue.close()


async def clients(raw: redis.asyncio.Redis, prefix: str) -> list[dict[str, str]]:
    """Returns the connections whose name has this prefix, as CLIENT LIST shows them."""
    found: Any = await raw.client_list()
    return [each for each in found if each["name"].startswith(prefix)]


async def wait_until_blocked(raw: redis.asyncio.Redis, count: int = 1) -> None:
    """Waits until `count` clients wait in blocking reads."""

    async def enough() -> bool:
        return int((await raw.info("clients"))["blocked_clients"]) == count

    await wait_until(enough, f"{count} clients block")


@pytest.mark.parametrize("seed", range(3))
async def test_a_cancelled_call_never_answers_the_next(proxied: QueueConnections, proxy: FaultProxy, seed: int) -> None:
    """After calls were cancelled at any moment, over a network of varying delay, each later call gets its reply."""
    chance = random.Random(seed)
    proxy.delay_s = lambda: chance.uniform(0, 0.004)
    connection, cancelled = proxied.connection("calls"), 0
    for i in range(150):
        call = asyncio.create_task(connection.call("ECHO", f"first-{i}"))
        done, _ = await asyncio.wait([call], timeout=chance.uniform(0, 0.012))
        if done:
            assert call.result() == f"first-{i}".encode()
        else:
            call.cancel()
            cancelled += 1
        for j in range(2):
            assert await connection.call("ECHO", f"next-{i}-{j}") == f"next-{i}-{j}".encode()
        assert call.done()
    assert cancelled > 20


async def test_a_cancel_while_others_wait_for_the_connection(proxied: QueueConnections, proxy: FaultProxy) -> None:
    """Calls that wait for one connection each get their own reply when some of them are cancelled."""
    chance = random.Random(7)
    proxy.delay_s = lambda: chance.uniform(0, 0.002)
    connection = proxied.connection("calls")
    for _ in range(20):
        calls = {str(i): asyncio.create_task(connection.call("ECHO", str(i))) for i in range(20)}
        await asyncio.wait(calls.values(), timeout=chance.uniform(0, 0.02))
        victims = chance.sample(sorted(calls), 8)
        for name in victims:
            calls[name].cancel()
        answers = await asyncio.gather(*calls.values(), return_exceptions=True)
        for name, answer in zip(calls, answers, strict=True):
            assert answer == name.encode() or (name in victims and isinstance(answer, asyncio.CancelledError))


async def test_a_reply_that_comes_too_late_never_answers_the_next(queue: QueueConnections, keys: Keys) -> None:
    """A call that timed out raises RedisUnreachableError, and a reply that arrives later goes to no call."""
    impatient = QueueConnections(queue.settings.model_copy(update={"redis_timeout_s": 1}), keys.queue, "impatient")
    connection = impatient.connection("late")
    for i in range(2):
        with pytest.raises(RedisUnreachableError):
            await connection.call("BLPOP", keys.reply("nobody"), "1.02")
        assert await connection.call("ECHO", str(i)) == str(i).encode()
    await impatient.close()


async def test_a_master_that_became_a_replica_is_left(tmp_path: Path) -> None:
    """Its connections stay open and refuse every write for ever; new ones are used only if they lead to a master."""
    server = Server()
    await asyncio.to_thread(server.start)
    queue = QueueConnections(QueueSettings(redis_url=server.url), "q", "c")
    try:
        connection, admin = queue.connection("a"), redis.asyncio.Redis.from_url(server.url, protocol=2)
        before = await connection.call("CLIENT", "ID")
        calls = (
            lambda: connection.call("SET", "a", "b"),
            lambda: connection.call("EVAL", "return redis.call('SET', 'a', 'b')", "0"),
            lambda: producer.queue_stats(connection, queue.keys),
        )
        for call in calls:
            await admin.replicaof("127.0.0.1", "1")
            for _ in range(2):
                with pytest.raises(RedisUnreachableError):
                    await call()
            await admin.replicaof("NO", "ONE")
            after = await connection.call("CLIENT", "ID")
            assert after > before
            before = after
    finally:
        await admin.aclose()
        await queue.close()
        await asyncio.to_thread(server.stop)


async def test_a_lost_reply_is_unreachable_in_time(impatient: QueueConnections, proxy: FaultProxy) -> None:
    """When a reply never comes the call ends by its timeout, and the next goes over a new connection."""
    connection = impatient.connection("calls")
    assert await connection.call("ECHO", "a") == b"a"
    proxy.set_next_actions(ReplyAction.DROP)
    with pytest.raises(RedisUnreachableError):
        await connection.call("ECHO", "b")
    assert await connection.call("ECHO", "c") == b"c"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://127.0.0.1:1/0", "Connection refused"),
        ("redis://redis.invalid:6379/0", "[Nn]ame"),
        ("unix:///nowhere/redis.sock", "No such file or directory"),
    ],
)
async def test_a_wrong_address_is_told_from_a_silent_redis(url: str, reason: str) -> None:
    """The reason of the system is in the error: a wrong port, host or socket is something to correct."""
    queue = QueueConnections(QueueSettings(redis_url=url, redis_timeout_s=5.0), "q", "test")
    with pytest.raises(RedisUnreachableError, match=rf"^Redis did not answer \(\w+: .*{reason}"):
        await queue.connection("calls").call("PING")
    await queue.close()


async def test_nothing_is_repeated_behind_the_callers_back(
    impatient: QueueConnections, proxy: FaultProxy, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """A command whose reply was cut off ran once: only the caller decides whether to repeat it."""
    connection = impatient.connection("calls")
    await connection.call("ECHO", "warm")
    for fate in (ReplyAction.CUT, ReplyAction.DROP):
        before = int(await raw.execute_command("HINCRBY", keys.backlog, "inputs", 0))
        proxy.set_next_actions(fate)
        with pytest.raises(RedisUnreachableError):
            await connection.call("HINCRBY", keys.backlog, "inputs", 1)
        assert int(await raw.execute_command("HINCRBY", keys.backlog, "inputs", 0)) == before + 1
        assert await connection.call("ECHO", "warm") == b"warm"
    await raw.delete(keys.backlog)


async def test_a_submit_whose_reply_is_lost_can_be_repeated(
    impatient: QueueConnections, proxy: FaultProxy, worker: Worker
) -> None:
    """The gateway repeats its sequence number after every cut, and the requests are there once."""
    connection = impatient.connection("submit")
    await connection.call("ECHO", "warm")
    for sequence in range(1, 9):
        submissions = [request(), request()]
        proxy.set_next_actions(ReplyAction.CUT if sequence % 2 else ReplyAction.DROP)
        with pytest.raises(RedisUnreachableError):
            await producer.submit(connection, impatient.keys, "g", sequence, QueueBound(100), submissions)
        reply = await producer.submit(connection, impatient.keys, "g", sequence, QueueBound(100), submissions)
        refs = [ref for outcome in reply.outcomes for ref in outcome.refs]
        entries = await worker.claim()
        assert [entry.ref for entry in entries] == refs
        assert await worker.commit(entries) == [True, True]


async def test_a_claim_whose_reply_is_lost_is_recovered(
    proxied: QueueConnections, proxy: FaultProxy, gateway: Gateway
) -> None:
    """The entries of a claim whose reply was lost come back to the same worker, all of them and without an attempt."""
    worker = Worker(proxied.connection("worker"), proxied.keys, "worker-proxied")
    await consumer.join(worker.connection, proxied.keys)
    refs = await gateway.add(*(request() for _ in range(3)))
    assert await worker.claim(entries=1)
    proxy.set_next_actions(ReplyAction.CUT)
    with pytest.raises(RedisUnreachableError):
        await worker.claim()
    entries = await worker.reclaim(owner=worker.name)
    assert [(entry.ref, entry.attempts) for entry in entries] == [(ref, 0) for ref in refs]
    assert await worker.commit(entries) == [True] * 3
    assert await worker.leave() == 0


async def test_a_commit_is_all_or_nothing_and_can_be_repeated(
    proxied: QueueConnections, proxy: FaultProxy, gateway: Gateway, worker: Worker
) -> None:
    """A commit whose reply was cut off counted; repeated, it changes nothing."""
    away = Worker(proxied.connection("commit"), proxied.keys, worker.name)
    assert await away.commit([]) == []  # Redis has the script now
    await gateway.add(*(request() for _ in range(4)))
    entries = await worker.claim()
    proxy.set_next_actions(ReplyAction.CUT)
    with pytest.raises(RedisUnreachableError):
        await away.commit(entries)
    assert await away.commit(entries) == [False] * 4


async def orphan(proxy: FaultProxy, reader: RedisConnection, raw: redis.asyncio.Redis, key: str) -> None:
    """Breaks a connection in its blocking pop so that Redis does not notice, and still serves it."""
    waiting = asyncio.create_task(reader.call("BLPOP", key, MAX_BLOCK_S, block_s=MAX_BLOCK_S))
    await wait_until_blocked(raw)
    proxy.cut(orphan=True)
    with pytest.raises(RedisUnreachableError):
        await waiting
    await wait_until_blocked(raw)


async def test_kill_closes_exactly_the_orphan_of_a_connection(
    proxied: QueueConnections, proxy: FaultProxy, queue: QueueConnections, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """Only the lost connection is closed: not those of others, not the new one of the same owner."""
    reader = proxied.connection("reply", identified=True)
    others = [queue.connection(f"l{i}", identified=True) for i in range(3)]
    for connection in others:
        await connection.call("ECHO", "x")
    await orphan(proxy, reader, raw, keys.reply("r"))
    (lost,) = await clients(raw, "proxied:reply")
    await reader.call("ECHO", "x")
    assert len(await clients(raw, "proxied:reply")) == 2
    await others[0].kill(reader)
    (left,) = await clients(raw, "proxied:reply")
    assert left["id"] != lost["id"]
    await others[0].kill(reader)
    await others[0].kill(others[1])
    assert await clients(raw, "proxied:reply") == [{**left, **{key: ANY for key in left if key not in ("id", "addr")}}]
    assert len(await clients(raw, "test:l")) == 3


async def test_two_orphans_are_both_killed(
    proxied: QueueConnections, proxy: FaultProxy, queue: QueueConnections, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """An owner that lost two connections before a kill leaves none of them open."""
    reader = proxied.connection("reply", identified=True)
    await orphan(proxy, reader, raw, keys.reply("r"))
    waiting = asyncio.create_task(reader.call("BLPOP", keys.reply("r"), MAX_BLOCK_S, block_s=MAX_BLOCK_S))
    await wait_until_blocked(raw, 2)
    proxy.cut(orphan=True)
    with pytest.raises(RedisUnreachableError):
        await waiting
    await queue.connection("killer").kill(reader)
    assert await clients(raw, "proxied:reply") == []


@pytest.mark.parametrize("wrong", [{b"id": b"999999999"}, {b"addr": b"127.0.0.1:1"}])
async def test_kill_with_a_wrong_identity_kills_nothing(
    queue: QueueConnections, raw: redis.asyncio.Redis, wrong: dict[bytes, bytes]
) -> None:
    """Id and address must both match: after a restart of Redis the id may belong to another client."""
    one, other = queue.connection("l1"), queue.connection("l2", identified=True)
    for connection in (one, other):
        await connection.call("ECHO", "x")
    other._orphans.append({**other._identity, **wrong})
    await one.kill(other)
    assert sorted(each["name"] for each in await clients(raw, "test:l")) == ["test:l1", "test:l2"]


async def test_an_unidentified_or_unused_connection_is_not_killed(
    queue: QueueConnections, raw: redis.asyncio.Redis
) -> None:
    """A connection that never read its id cannot be killed, and an attempt is harmless."""
    one, other = queue.connection("l1"), queue.connection("l2")
    await other.call("ECHO", "x")
    await one.kill(other)
    await one.kill(queue.connection("l3", identified=True))
    assert [each["name"] for each in await clients(raw, "test:l")] == ["test:l2"]


async def test_a_dead_reader_takes_no_reply_once_it_is_killed(
    proxied: QueueConnections, proxy: FaultProxy, queue: QueueConnections, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """A blocking pop that Redis keeps open after its client is gone takes replies, until it is killed."""
    reader = proxied.connection("reply", identified=True)
    await orphan(proxy, reader, raw, keys.reply("r"))
    await queue.connection("killer").kill(reader)
    await wait_until_blocked(raw, 0)
    await raw.execute_command("RPUSH", keys.reply("r"), "mine")
    assert await reader.pop(keys.reply("r"), 1) == b"mine"


async def test_a_kill_that_did_not_arrive_can_be_tried_again(
    impatient: QueueConnections, proxy: FaultProxy, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """When the killer's own connection fails, the orphan is remembered for the next attempt."""
    reader, killer = impatient.connection("reply", identified=True), impatient.connection("killer")
    await orphan(proxy, reader, raw, keys.reply("r"))
    await killer.call("ECHO", "warm")
    proxy.silent = True
    with pytest.raises(RedisUnreachableError):
        await killer.kill(reader)
    proxy.silent = False
    assert len(await clients(raw, "proxied:reply")) == 1
    await killer.kill(reader)
    assert await clients(raw, "proxied:reply") == []


async def test_unblock_ends_a_blocking_pop_at_once(
    queue: QueueConnections, raw: redis.asyncio.Redis, keys: Keys
) -> None:
    """The pop returns None, and the connection can be used again; one that does not block is not affected."""
    reader, one = queue.connection("reply", identified=True), queue.connection("unblock")
    waiting = asyncio.create_task(reader.call("BLPOP", keys.reply("r"), "0", block_s=MAX_BLOCK_S))  # it has no end
    await wait_until_blocked(raw)
    await one.unblock(reader)
    assert await waiting is None
    await one.unblock(reader)
    await one.unblock(queue.connection("unused", identified=True))
    assert await reader.call("ECHO", "x") == b"x"


async def test_scripts_are_sent_again_after_script_flush(queue: QueueConnections, worker: Worker) -> None:
    """The next call sends the scripts again to a Redis that has lost them; concurrent calls keep their order."""
    gateway = Gateway(queue.connection("submit"), queue.keys)
    await gateway.add(request())
    await queue.connection("flush").call("SCRIPT", "FLUSH")
    replies = await asyncio.gather(*(gateway.submit(request()) for _ in range(10)))
    ids = [outcome.refs[0].entry_id for reply in replies for outcome in reply.outcomes]
    assert ids == sorted(ids, key=lambda each: [int(part) for part in each.split(b"-")])
    assert len(await worker.commit(await worker.claim())) == 11


async def test_a_server_that_is_gone_and_comes_back() -> None:
    """Without a server calls raise RedisUnreachableError at once; afterwards the same connection works."""
    with Server() as server:
        queue = QueueConnections(QueueSettings(redis_url=server.url, redis_timeout_s=1), "gone", "test")
        connection = queue.connection("calls", identified=True)
        assert await connection.call("ECHO", "a") == b"a"
        os.kill(server.pid, signal.SIGKILL)
        await wait_until(lambda: not server.is_running(), "the server is dead")
        for _ in range(3):
            with pytest.raises(RedisUnreachableError):
                await connection.call("ECHO", "b")
        await asyncio.to_thread(server.start)
        assert await connection.call("ECHO", "c") == b"c"
        await queue.close()


async def test_a_script_that_only_reads_is_called_as_such(
    queue: QueueConnections, raw: redis.asyncio.Redis, server_version: Version
) -> None:
    """Redis 7.0 gets EVALSHA_RO, so that a read-only user may call it. 6.2 rejects it, and gets it once."""
    connection = queue.connection("stats")
    await raw.script_flush()
    await raw.config_resetstat()
    for _ in range(3):
        await producer.queue_stats(connection, queue.keys)
    stats: Any = await raw.info("commandstats")
    called = {name: stat["calls"] for name, stat in stats.items() if name.startswith("cmdstat_eval")}
    form = "_ro" if server_version >= (7, 0) else ""
    assert called == {f"cmdstat_evalsha{form}": 3, f"cmdstat_eval{form}": 1}


async def test_a_server_that_refuses_more_clients(queue: QueueConnections, raw: redis.asyncio.Redis) -> None:
    """At `maxclients` a new connection raises RedisUnreachableError and does not hang; with room again it works."""
    await raw.ping()
    before: Any = (await raw.config_get("maxclients"))["maxclients"]
    await raw.config_set("maxclients", 1)
    connection = queue.connection("one-too-many")
    try:
        with pytest.raises(RedisUnreachableError):
            await connection.call("ECHO", "x")
    finally:
        await raw.config_set("maxclients", before)
    assert await connection.call("ECHO", "x") == b"x"


async def test_a_connection_sends_only_what_is_needed(queue: QueueConnections, raw: redis.asyncio.Redis) -> None:
    """A new connection sends its name, its id request and the calls: no HELLO, no PING, no library name."""
    await raw.config_resetstat()
    connection: RedisConnection = queue.connection("quiet", identified=True)
    for _ in range(3):
        await connection.call("ECHO", "x")
    stats: Any = await raw.info("commandstats")
    sent = {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}
    sent.pop("info", None)
    assert sent.pop("auth", 0) == int(users_are_on())
    assert {name.split("|")[0]: calls for name, calls in sent.items() if name != "config|resetstat"} in (
        {"echo": 3, "client": 2, "config": 1},  # 6.2 does not distinguish subcommands
        {"echo": 3, "client": 1},
    )


async def test_the_options_of_a_connection_are_explicit(queue: QueueConnections) -> None:
    """No retries, no health checks, RESP2, no decoding, and a timeout for every wait."""
    raw_connection = queue.source.make_connection()
    assert raw_connection.retry.get_retries() == 0
    assert not raw_connection.retry_on_error
    assert raw_connection.retry_on_timeout is False
    assert (raw_connection.health_check_interval, raw_connection.protocol) == (0, 2)
    assert raw_connection.encoder.decode_responses is False
    assert raw_connection.socket_timeout == raw_connection.socket_connect_timeout == queue.settings.redis_timeout_s


async def test_each_redis_connection_is_one_connection(queue: QueueConnections, raw: redis.asyncio.Redis) -> None:
    """Whatever the load, a process has one connection for each RedisConnection, and none after closing them."""
    connections = [queue.connection(f"c{i}") for i in range(3)]
    await asyncio.gather(*(connection.call("ECHO", "x") for connection in connections for _ in range(20)))
    assert sorted(each["name"] for each in await clients(raw, "test:c")) == ["test:c0", "test:c1", "test:c2"]
    await queue.close()

    async def gone() -> bool:
        return await clients(raw, "test:") == []

    await wait_until(gone, "all connections are closed")
