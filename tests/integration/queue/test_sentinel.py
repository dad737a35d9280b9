"""Connections by way of sentinels: they lead to the master, and move with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
import redis.asyncio
from typer.testing import CliRunner

from redbatch.commands import app
from shared import consumer
from shared.connection import RedisConnection
from shared.errors import RedisUnreachableError
from shared.process.tasks import cancel_and_wait
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.sentinels import ANNOUNCED_WITHIN_S, SentinelGroup, sentinel_group
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.asyncio(loop_scope="module")]

SENTINEL_PASSWORD = "of-the-sentinels"
TIMEOUT_S = 1.0
"""Sentinels that stand still for over two seconds make no failover for the next thirty: so no test may wait longer."""

SETTINGS = {"redis_sentinel_password": SENTINEL_PASSWORD, "redis_timeout_s": TIMEOUT_S}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def group(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SentinelGroup]:
    """Yields a group in which Redis has a password, and the sentinels another one."""
    folder = tmp_path_factory.mktemp("sentinels")
    async with sentinel_group(folder, password="s3cret", sentinel_password=SENTINEL_PASSWORD) as group:
        yield group


@pytest_asyncio.fixture(loop_scope="module")
async def queue(group: SentinelGroup, queue_name: str) -> AsyncIterator[QueueConnections]:
    """Yields the connections of a process."""
    queue = QueueConnections(QueueSettings.model_validate({"redis_url": group.url, **SETTINGS}), queue_name, "test")
    yield queue
    await queue.close()


async def port_of(connection: RedisConnection) -> int:
    """Returns the port of the server to which a connection leads."""
    info = dict(line.partition(b":")[::2] for line in (await connection.call("INFO", "server")).splitlines())
    return int(info[b"tcp_port"])


async def test_a_connection_leads_to_the_master(group: SentinelGroup, queue: QueueConnections) -> None:
    """With the password of Redis from the URL, and that of the sentinels from the settings."""
    connection = queue.connection("any")
    assert await port_of(connection) == (await group.master()).port
    assert await connection.call("SET", queue.keys.epoch, "1") == b"OK"


async def test_all_connections_follow_a_planned_failover(group: SentinelGroup, queue: QueueConnections) -> None:
    """Also one that waits, to which nothing is sent; one check a second is what gateways and workers do."""
    moves: list[None] = []
    queue.home.watch(lambda: moves.append(None))
    checking, waiting = queue.connection("checking"), queue.connection("waiting")
    await asyncio.gather(checking.ping(), waiting.ping())
    wait = asyncio.create_task(waiting.call("BLPOP", queue.keys.reply("nobody"), "0", block_s=60.0))
    await checking.check_home()  # it had replicas from the start: nothing changes
    await group.fail_over()
    master = await group.master()

    async def has_moved() -> bool:
        try:
            await checking.check_home()
            return await port_of(checking) == master.port
        except RedisUnreachableError:
            return False

    await wait_until(has_moved, "the connection leads to the new master")
    assert isinstance((await asyncio.gather(wait, return_exceptions=True))[0], RedisUnreachableError)
    assert await port_of(waiting) == master.port
    assert moves == [None]
    await group.wait_until_joined()


async def have_subscribers(group: SentinelGroup, number: int) -> bool:
    """Returns whether each sentinel has this number of subscribers."""
    counts = []
    for sentinel in group.sentinels:
        async with redis.asyncio.Redis(port=sentinel.port, password=SENTINEL_PASSWORD, protocol=2) as raw:
            counts.append(len(await raw.client_list(_type="pubsub")))
    return counts == [number] * len(counts)


async def test_a_switch_is_followed_without_a_question(group: SentinelGroup, queue: QueueConnections) -> None:
    """Sentinels announce it, and a connection that waits is reset. There is a new subscription to one that comes back.

    Sentinels would cut the connection too, but only when they make the former master a replica, 8 s later.
    """
    waiting, first = queue.connection("waiting"), group.sentinels[0]
    await waiting.ping()
    following = asyncio.create_task(queue.follow_switches())
    try:
        await wait_until(partial(have_subscribers, group, 1), "the process subscribes")
        wait = asyncio.create_task(waiting.call("BLPOP", queue.keys.reply("nobody"), "0", block_s=60.0))
        await group.fail_over()
        with pytest.raises(RedisUnreachableError):
            await asyncio.wait_for(wait, ANNOUNCED_WITHIN_S)
        assert await port_of(waiting) == (await group.master()).port
        first.kill()
        first.start()
        await wait_until(partial(have_subscribers, group, 1), "the process subscribes again")
    finally:
        await cancel_and_wait([following])
        await group.wait_until_joined()
    await wait_until(partial(have_subscribers, group, 0), "the connections to the sentinels are closed")


async def test_a_dead_sentinel_and_one_that_hangs_delay_nothing(group: SentinelGroup, queue: QueueConnections) -> None:
    """The first in the URL are no better than the last."""
    first, second, _ = group.sentinels
    first.kill()
    os.kill(second.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert await port_of(queue.connection("any")) == (await group.master()).port
        assert time.monotonic() - began < TIMEOUT_S, "no time-out is waited for"
    finally:
        os.kill(second.pid, signal.SIGCONT)
        first.start()
    await group.wait_until_joined()


async def test_without_any_sentinel_open_connections_go_on(group: SentinelGroup, queue: QueueConnections) -> None:
    """Only a new connection needs one; its error names the sentinels."""
    connection = queue.connection("open")
    await connection.ping()
    for sentinel in group.sentinels:
        os.kill(sentinel.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(0.3)  # what they said last is no longer fresh
        await connection.check_home()
        await connection.ping()
        with pytest.raises(RedisUnreachableError, match=f"None of 127.0.0.1:{group.sentinels[0].port}, .* says where"):
            await queue.connection("new").ping()
    finally:
        for sentinel in group.sentinels:
            os.kill(sentinel.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("settings", "url_suffix", "problem"),
    [
        ({"redis_sentinel_password": "wrong"}, "", "invalid username-password pair"),
        ({"redis_sentinel_password": ""}, "", "Authentication required"),
        ({}, "2", "No such master with that name"),
    ],
)
async def test_what_the_sentinels_refuse_is_said(
    group: SentinelGroup, queue_name: str, settings: dict[str, str], url_suffix: str, problem: str
) -> None:
    """It will not pass by itself, so `redbatch up` and the command line end with it."""
    url = group.url.replace("/mymaster", f"/mymaster{url_suffix}")
    queue = QueueConnections(
        QueueSettings.model_validate({"redis_url": url, **SETTINGS, **settings}), queue_name, "test"
    )
    try:
        with pytest.raises(RedisUnreachableError, match=problem) as refused:
            await queue.connection("any").ping()
        assert refused.value.is_refused
        assert SENTINEL_PASSWORD not in str(refused.value)
    finally:
        await queue.close()


async def test_the_password_of_redis_may_be_in_a_file(group: SentinelGroup, queue_name: str, tmp_path: Path) -> None:
    """It is not sent to the sentinels, which have another one."""
    (tmp_path / "password").write_text("s3cret\n", encoding="utf-8")
    settings = {"redis_url": group.url.replace(":s3cret@", ""), "redis_password_file": str(tmp_path / "password")}
    queue = QueueConnections(QueueSettings.model_validate({**settings, **SETTINGS}), queue_name, "test")
    await queue.connection("any").ping()
    await queue.close()


async def test_a_wrong_password_of_redis_is_said(group: SentinelGroup, queue_name: str) -> None:
    """It is not that of the sentinels."""
    url = group.url.replace("s3cret", "wrong")
    queue = QueueConnections(QueueSettings.model_validate({"redis_url": url, **SETTINGS}), queue_name, "test")
    try:
        with pytest.raises(RedisUnreachableError, match="Redis refuses the user or its password"):
            await queue.connection("any").ping()
    finally:
        await queue.close()


async def run_redbatch(group: SentinelGroup, *words: str) -> str:
    """Runs a command that finds Redis by the sentinels, which must succeed; returns what it prints on stdout."""
    env = {"REDBATCH_REDIS_URL": group.url, "REDBATCH_REDIS_SENTINEL_PASSWORD": SENTINEL_PASSWORD}
    result = await asyncio.to_thread(CliRunner().invoke, app, words, env=env)
    assert result.exit_code == 0, (words, result.output)
    return result.stdout


async def test_commands_follow_the_master(group: SentinelGroup, queue: QueueConnections) -> None:
    """All that read or write Redis take the URL of the sentinels; a key that is created outlives a failover."""
    queue_name = queue.keys.queue
    await consumer.announce(queue.connection("worker"), queue.keys)
    key_id = (await run_redbatch(group, "keys", "create")).partition(".")[0]

    async def check() -> None:
        assert key_id in await run_redbatch(group, "keys", "list")
        state = json.loads(await run_redbatch(group, "queue", "--json", "--queue", queue_name))
        assert (state["queue"], state["workers"]) == (queue_name, [])

    await check()
    assert await run_redbatch(group, "jobs", "list", "--json") == ""
    assert "0 dead letters" in await run_redbatch(group, "dead", "list", "--queue", queue_name)
    assert "no live worker shares GPUs" in await run_redbatch(group, "leases")
    await group.fail_over()
    await check()
    await group.wait_until_joined()
