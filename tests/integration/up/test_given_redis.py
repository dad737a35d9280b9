"""`redbatch up --redis-url`: a Redis that refuses it ends it with one line; one that does not answer yet is awaited."""

from __future__ import annotations

from pathlib import Path

import pytest

from redbatch.up.local_redis import LocalRedis, free_port
from tests.integration.up.up_process import Start, Up, vector
from tests.redis_cluster import RedisCluster
from tests.sentinels import sentinel_group
from tests.servers import Server, server_binary
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://:guessed@127.0.0.1:{port}/0", "Redis refuses the user or its password"),
        ("redis://:s3cr@127.0.0.1:{port}/99", "DB index is out of range"),
        ("redis://:s3cr@127.0.0.1:{port},localhost:{port}", "--redis-url (REDBATCH_REDIS_URL): it takes one host"),
        ("sentinel://:s3cr@127.0.0.1:{port}/mymaster/0", "it takes a URL that begins with redis://"),
    ],
)
async def test_what_cannot_start_is_not_restarted(url: str, reason: str, start: Start) -> None:
    """The exit code is that of a wrong setting, the password is not shown, and no process is started."""
    with Server(options=("--requirepass", "s3cr"), users=False) as server:
        await check_ends(start("--redis-url", url.format(port=server.port)), reason)


async def check_ends(up: Up, reason: str) -> None:
    """Checks that one line, without any password, and the exit code say that it cannot start."""
    assert await up.wait_until_ended() == 2
    (line,) = up.output.splitlines()
    assert reason in line
    assert "s3cr" not in line
    assert "guessed" not in line


@pytest.mark.parametrize(
    ("master", "password", "reason"),
    [
        ("other", "s3cr", "No such master with that name"),
        ("mymaster", "guessed", "invalid username-password pair"),
    ],
)
async def test_what_the_sentinels_refuse_is_not_restarted(
    master: str, password: str, reason: str, start: Start, tmp_path: Path
) -> None:
    """Neither a name that they do not know, nor a wrong password of theirs."""
    async with sentinel_group(tmp_path, sentinel_password="s3cr") as group:
        url = group.url.replace("/mymaster/", f"/{master}/")
        await check_ends(start("--redis-url", url, REDBATCH_REDIS_SENTINEL_PASSWORD=password), reason)


async def test_another_node_of_a_cluster_is_not_restarted(start: Start) -> None:
    """A node that does not have the queue's slot never will by itself."""
    with RedisCluster() as cluster:
        await check_ends(start("--redis-url", cluster.urls[1]), "MOVED")


async def test_one_shard_that_refuses_is_enough(start: Start) -> None:
    """The line names it, though the others could serve."""
    with Server(users=False) as good, Server(options=("--requirepass", "s3cr"), users=False) as bad:
        url = f"redis://:guessed@127.0.0.1:{bad.port}/0"
        await check_ends(start(REDBATCH_REDIS_SHARDS=f"{good.url},{url}"), f"127.0.0.1:{bad.port}/0: Redis refuses")


async def test_it_waits_for_a_redis_that_comes_later(start: Start) -> None:
    """It says once why it waits, and serves when Redis is there."""
    port = free_port()
    up = start("--redis-url", f"redis://127.0.0.1:{port}/0")
    await wait_until(lambda: "Connection refused" in up.output, "it says why it waits", timeout_s=30)
    with LocalRedis(server_binary(), port=port):
        await up.wait_until_ready()
        assert await up.embed() == pytest.approx(vector("hello"), abs=1e-6)
    assert f"no Redis yet at redis://127.0.0.1:{port}/0: " in up.output
