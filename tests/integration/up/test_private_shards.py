"""`redbatch up --redis-shards 2`: several private Redis, each with a shard of the queue."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
import pytest
import redis

from shared.keys import API_KEYS
from tests import plain_http
from tests.integration.up.up_process import START_S, Start, Up, kill_all, run_command, start_worker, vector
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

MIB = 1_048_576


def client_of(up: Up, shard: int) -> redis.Redis:
    """Returns a client of a shard, which answers with texts."""
    client: redis.Redis = redis.Redis.from_url(up.fact(f"shard {shard}"), protocol=2, decode_responses=True)
    return client


def ask(up: Up, shard: int, *words: str) -> Any:  # noqa: ANN401 - as the answer of the client
    """Sends a command to the Redis of a shard, and returns the answer."""
    with client_of(up, shard) as client:
        return client.execute_command(*words)


def server_of(up: Up, shard: int) -> psutil.Process:
    """Returns the process of the Redis of a shard."""
    with client_of(up, shard) as client:
        info: Any = client.info("server")
    return psutil.Process(int(info["process_id"]))


async def embed(url: str, text: str) -> None:
    """Sends a request, which must be answered with its vector."""
    async with plain_http.client() as client:
        answer = await client.post(f"{url}/embed", json={"text": text}, timeout=START_S)
    assert answer.status_code == 200, answer.text
    assert answer.json()["embedding"] == pytest.approx(vector(text), abs=1e-6)


async def test_requests_go_on_while_one_redis_is_killed(start: Start) -> None:
    """All calls are answered, and that Redis is started again at the same address, where its shard is used again."""
    options = ("--redis-shards", "2", "--gateways", "2", "--max-redis-bytes", str(100 * MIB))
    up = await start(*options, "--log-level", "info").wait_until_ready()
    url, first = up.fact("API").split(" ")[0], server_of(up, 1)
    assert [ask(up, shard, "CONFIG", "GET", "maxmemory")[1] for shard in (0, 1)] == [str(50 * MIB)] * 2
    await asyncio.gather(*(embed(url, f"before {number}") for number in range(40)))

    num_answers = 0

    async def call_until_it_is_missed() -> None:
        nonlocal num_answers
        while "redis-1 died and lost its data" not in up.output:
            await embed(url, f"during {num_answers}")
            num_answers += 1

    calls = [asyncio.create_task(call_until_it_is_missed()) for _ in range(8)]
    await wait_until(lambda: num_answers > 20, "calls are answered")
    os.kill(first.pid, signal.SIGKILL)
    await asyncio.gather(*calls)
    await wait_until(lambda: is_served(up, 1), "the worker serves the Redis that is there again", timeout_s=START_S)
    assert server_of(up, 1).pid != first.pid
    await asyncio.gather(*(embed(url, f"after {number}") for number in range(40)))


def is_served(up: Up, shard: int) -> bool:
    """Returns whether a worker beats on a shard."""
    try:
        return bool(ask(up, shard, "EXISTS", "rb:{null}:workers"))
    except redis.RedisError:
        return False


async def test_the_printed_lines_and_the_commands_have_all_shards(start: Start) -> None:
    """A line for each shard shows its queue. Commands, and a worker that joins, find all of them."""
    up = await start("--redis-shards", "2", "--auth", "on").wait_until_ready()
    assert up.fact("Redis") == ""
    for shard in (0, 1):
        words = shlex.split(up.fact(f"queue {shard}"))
        assert words[1:5] == ["-s", unquote(urlsplit(up.fact(f"shard {shard}")).path), "-n", "0"]
        assert ask(up, shard, *words[5:]) == 0
    key_ids = [[each for each in ask(up, shard, "HKEYS", API_KEYS) if len(each) > 8] for shard in (0, 1)]
    assert key_ids == [[up.fact("key").partition(".")[0]]] * 2
    port = str(urlsplit(up.fact("API").split(" ")[0]).port)
    for command in ("keys list", "jobs list", "keys create"):
        code, _, errors = await run_command(up, *command.split(), "--up", port)
        assert (code, "no effect" in errors) == (0, False), errors
    assert all(len([each for each in ask(up, shard, "HKEYS", API_KEYS) if len(each) > 8]) == 2 for shard in (0, 1))
    with start_worker(up) as joined:
        await wait_until(lambda: joined.is_ready, "the worker is ready", timeout_s=START_S)

        def num_workers() -> list[int]:
            return [ask(up, shard, "ZCARD", "rb:{null}:workers") for shard in (0, 1)]

        await wait_until(lambda: num_workers() == [2, 2], "it serves both")
    up.process.send_signal(signal.SIGINT)
    assert await up.wait_until_ended() == 0
    assert list(up.folder.iterdir()) == []


async def test_each_redis_keeps_its_data_in_a_folder(start: Start, tmp_path: Path) -> None:
    """After a kill of all, jobs on both shards are there. Without some of the Redis, it does not start."""
    data = tmp_path / "data"
    arguments = ("--redis-shards", "2", "--data-dir", str(data))
    up = await start(*arguments).wait_until_ready()
    url = up.fact("API").split()[0]
    jobs: dict[bool, str] = {}
    while len(jobs) < 2:
        job = plain_http.post(f"{url}/jobs", json={"texts": ["a"]}).json()
        jobs["@1." in job["id"]] = job["status_url"]
    assert sorted(each.name for each in data.glob("shard-*")) == ["shard-0", "shard-1"]
    kill_all(up)
    one = start("--data-dir", str(data))
    assert await one.wait_until_ended() == 1
    assert "has the data of 2 shards: start with --redis-shards 2" in one.output
    up = await start(*arguments).wait_until_ready()
    url = up.fact("API").split()[0]
    for each in jobs.values():
        assert plain_http.get(f"{url}{each}").status_code == 200


async def test_an_earlier_folder_of_one_redis_is_refused(start: Start, tmp_path: Path) -> None:
    """Its data would be on no shard."""
    data = tmp_path / "data"
    up = await start("--data-dir", str(data)).wait_until_ready()
    kill_all(up)
    several = start("--redis-shards", "2", "--data-dir", str(data))
    assert await several.wait_until_ended() == 1
    assert "has the data of one Redis: leave out --redis-shards" in several.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--redis-shards", "1"), "--redis-shards: it takes a number of Redis from 2 to 16, or URLs"),
        (("--redis-shards", "17"), "--redis-shards: it takes a number of Redis from 2 to 16, or URLs"),
        (("--redis-shards", "2", "--redis-url", "redis://127.0.0.1:1"), "exclude each other"),
        (("--redis-shards", "2", "--max-redis-bytes", "20000000"), "--max-redis-bytes: 2 Redis need 33554432"),
        (("--redis-shards", "redis://a,redis://b", "--data-dir", "data"), "--data-dir is for the private Redis"),
    ],
)
async def test_what_does_not_fit_together_is_misuse(words: tuple[str, ...], message: str, start: Start) -> None:
    """One line says so, and no process is started."""
    up = start(*words)
    assert await up.wait_until_ended() == 2
    (line,) = up.output.splitlines()
    assert message in line


async def test_given_shards_are_taken_as_they_are(start: Start) -> None:
    """`up` with the URLs of another one's shards serves beside it, starts no Redis, and waits for none."""
    first = await start("--redis-shards", "2").wait_until_ready()
    urls = ",".join(first.fact(f"shard {shard}") for shard in (0, 1))
    second = await start("--queue", "second", REDBATCH_REDIS_SHARDS=urls).wait_until_ready()
    assert [second.fact(f"shard {shard}") for shard in (0, 1)] == urls.split(",")
    assert second.fact("restart") == ""
    assert len(second.children()) == 2
    await embed(second.fact("API").split(" ")[0], "hello")
