"""The Redis of `redbatch up`: its memory, and what it keeps. tests/chaos/test_private_redis.py tries to reach it."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import redis

from redbatch.up.memory import default_redis_bytes
from tests import plain_http
from tests.fake_redis import make_fake_redis
from tests.integration.up.up_process import (
    START_S,
    Start,
    Up,
    kill_all,
    running,
    serves,
    vector,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]


async def test_the_memory_of_its_redis_is_bounded(start: Start) -> None:
    """The bound is a part of the machine's memory, unless it is set. Redis evicts nothing; its folder goes with it."""
    for options, max_bytes in ((), None), (("--max-redis-bytes", "50000000"), 50_000_000):
        up = await start(*options, "--queue", f"null{len(options)}").wait_until_ready()
        with redis.Redis.from_url(up.fact("Redis"), protocol=2, decode_responses=True) as client:
            assert int(client.config_get("maxmemory")["maxmemory"]) == (max_bytes or default_redis_bytes())
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        up.process.send_signal(signal.SIGINT)
        assert await up.wait_until_ended() == 0
        assert not Path(unquote(urlsplit(up.fact("Redis")).path)).parent.exists()


@pytest.fixture
def short_temporary() -> Iterator[str]:
    """A folder in which the path of a socket is not too long; in /tmp, any other `up` may remove what a test left."""
    with TemporaryDirectory() as path:
        yield path


async def test_the_next_up_removes_the_folder_of_a_killed_one(short_temporary: str, start: Start) -> None:
    """After SIGKILL of all of its processes, the folder of its Redis is left; that of a running `up` stays."""
    folders = []
    for number in range(3):
        up = await start("--queue", f"null{number}", TMPDIR=short_temporary).wait_until_ready()
        folders.append(Path(unquote(urlsplit(up.fact("Redis")).path)).parent)
        assert folders[-1].parent == Path(short_temporary)
        if number == 0:
            kill_all(up)
            assert folders[0].exists()
    assert [each.exists() for each in folders] == [False, True, True]


def has_status(get: Callable[[Up, str], dict[str, Any]], up: Up, path: str, status: str) -> bool:
    """Returns whether a job has a status."""
    return bool(get(up, path)["status"] == status)


async def test_with_a_data_directory_accepted_jobs_survive_a_kill(start: Start, tmp_path: Path) -> None:
    """After SIGKILL of `up`, Redis and all others, the next `up` with the same folder ends the jobs it finds there.

    The API key that the first `up` printed stays valid.
    """
    data = tmp_path / "data"
    arguments = ("--model", "simulated:base_ms=20,item_ms=10", "--auth", "on", "--data-dir", str(data))
    up = await start(*arguments).wait_until_ready()
    assert f"in {data}" in up.fact("restart")
    assert data.stat().st_mode & 0o777 == 0o700
    key, texts = up.fact("key"), [f"text {i}" for i in range(300)]
    headers = {"authorization": f"Bearer {key}"}

    def get(up: Up, path: str) -> dict[str, Any]:
        return dict(plain_http.get(up.fact("API").split()[0] + path, headers=headers, timeout=30).json())

    url = up.fact("API").split()[0]
    accepted = [plain_http.post(f"{url}/jobs", json={"texts": texts}, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in accepted] == [202, 202]
    jobs = [answer.json() for answer in accepted]
    await wait_until(lambda: get(up, jobs[0]["status_url"])["done"] > 0, "the first job runs")
    kill_all(up)
    up = await start(*arguments).wait_until_ready()
    assert up.fact("key") == key
    assert get(up, jobs[1]["status_url"])["status"] in ("queued", "running")
    for job in jobs:
        has_ended = functools.partial(has_status, get, up, job["status_url"], "done")
        await wait_until(has_ended, "the job is done", timeout_s=60)
        rows = get(up, job["result_url"])["embeddings"]
        assert rows == [pytest.approx(vector(text), abs=1e-6) for text in texts]


async def test_what_tenants_have_used_survives_a_killed_redis(start: Start, tmp_path: Path) -> None:
    """Counts that the append-only file has are there after SIGKILL of Redis, and counting goes on."""
    up = await start("--data-dir", str(tmp_path / "data")).wait_until_ready()
    url = up.fact("API").split()[0]

    def counts() -> list[tuple[str, int, int]]:
        rows = plain_http.get(f"{url}/usage?group=tenant").json().get("rows", [])
        return [(row["tenant"], row["requests"], row["inputs"]) for row in rows]

    def send(number: int) -> None:
        headers = {"x-tenant": "web"}
        answers = [plain_http.post(f"{url}/embed", json={"text": f"{i}"}, headers=headers) for i in range(number)]
        assert [each.status_code for each in answers] == number * [200]

    send(20)
    await wait_until(lambda: counts() == [("web", 20, 20)], "all are counted")
    await asyncio.sleep(1.5)  # the file is written each second
    (victim,) = [each for each in up.children() if each not in up.children("redbatch")]
    victim.kill()
    await wait_until(lambda: "keeps its data; starting again at /" in up.output, "Redis has a successor")
    await wait_until(lambda: plain_http.get(f"{url}/readyz").status_code == 200, "it is ready", timeout_s=START_S)
    send(10)
    await wait_until(lambda: counts() == [("web", 30, 30)], "the counts go on from those before")


async def test_a_data_directory_serves_one_up(start: Start, tmp_path: Path) -> None:
    """A second `up`, a folder with other files, and --redis-url are one line each that says what to do."""
    data, other = tmp_path / "data", tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("mine")
    first = await start("--data-dir", str(data)).wait_until_ready()
    for arguments, code, message in (
        (("--data-dir", str(data)), 1, f"in use by another `redbatch up` (process {first.process.pid}): stop that one"),
        (("--data-dir", str(other)), 1, "name an empty or a new folder"),
        (("--data-dir", str(tmp_path / "new"), "--redis-url", first.fact("Redis")), 2, "with --redis-url"),
        (("--max-redis-bytes", "50000000", "--redis-url", first.fact("Redis")), 2, "set its maxmemory"),
        (("--job-durability", "replicas"), 2, "has no replica: use --redis-url"),
        (("--job-durability", "aof"), 2, "keeps nothing on disk: add --data-dir DIR"),
    ):
        up = start(*arguments)
        assert await up.wait_until_ended() == code
        (line,) = up.output.splitlines()
        assert message in line
    (victim,) = [each for each in first.children() if each not in first.children("redbatch")]
    victim.kill()
    await wait_until(lambda: "keeps its data; starting again at /" in first.output, "Redis has a successor")
    await wait_until(lambda: serves(first), "requests are served again", timeout_s=START_S)
    first.process.send_signal(signal.SIGINT)
    assert await first.wait_until_ended() == 0
    await start("--data-dir", str(data)).wait_until_ready()


async def test_durable_jobs_are_accepted_with_a_data_directory(start: Start, tmp_path: Path) -> None:
    """Also by a Redis before 7.2, which confirms a write to disk only if it syncs each."""
    up = await start("--data-dir", str(tmp_path / "data"), "--job-durability", "aof").wait_until_ready()
    answer = plain_http.post(f"{up.fact('API').split()[0]}/jobs", json={"texts": ["a"]})
    assert answer.status_code == 202, answer.text


async def test_ctrl_c_ends_the_wait_for_kept_data(start: Start, tmp_path: Path) -> None:
    """A large folder may take minutes to load: the user need not wait for it to stop `up`."""
    data, program = tmp_path / "data", make_fake_redis(tmp_path / "programs")
    up = start("--data-dir", str(data), PATH=f"{program.parent}:{os.environ['PATH']}")
    await wait_until((data / "contacted").exists, "Redis loads its data", timeout_s=START_S)
    processes = up.all_descendants()
    up.process.send_signal(signal.SIGINT)
    assert await up.wait_until_ended() == 0
    assert running(processes) == []


async def test_without_a_data_directory_it_says_what_a_restart_loses(start: Start) -> None:
    """One line of the facts names the loss and the flag; with a Redis of the user's own there is no such line."""
    up = await start().wait_until_ready()
    assert "loses accepted jobs" in up.fact("restart")
    assert "--data-dir" in up.fact("restart")
    second = await start("--redis-url", up.fact("Redis"), "--queue", "second").wait_until_ready()
    assert second.fact("restart") == ""
