"""`redbatch jobs`, and the example that consumes the results of jobs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import redis
from typer.testing import CliRunner, Result

from redbatch.commands import app
from redbatch.up.run_file import Announcement, RunFile
from shared.keys import QUEUES, Keys
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, null_vector
from tests.processes import Processes
from tests.servers import Server
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(90)]

ECHO = "tests.integration.functions.function_models:Echo"
EXAMPLE = Path(__file__).parents[2] / "docs/examples/consume_results.py"


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """Gateways and workers of this test, on the queue of this test."""
    async with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        yield GatewayCluster(processes, redis_url, queue_name)


def create_job(
    gateway: GatewayProcess, texts: list[str], options: Mapping[str, object] = MappingProxyType({}), **headers: str
) -> str:
    """Creates a job with these texts and options; returns its id. `x_tenant` is the header X-Tenant."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = plain_http.post(f"{gateway.url}/jobs", json={"texts": texts, **options}, headers=named)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def status(gateway: GatewayProcess, job: str) -> str:
    """Returns the status of a job, once it has ended or after one second."""
    return str(plain_http.get(f"{gateway.url}/jobs/{job}?wait=1").json()["status"])


def is_done(gateway: GatewayProcess, job: str) -> bool:
    """Whether a job is done, at once or within one second."""
    return status(gateway, job) == "done"


async def command(cluster: GatewayCluster, *words: str, answer: str = "") -> Result:
    """Runs `redbatch jobs` in a thread, because the command runs an event loop; `answer` is its standard input."""
    target = ["--redis-url", as_user(cluster.redis_url, "admin"), "--queue", cluster.queue]
    return await asyncio.to_thread(CliRunner().invoke, app, ["jobs", *words, *target], answer)


async def list_jobs(cluster: GatewayCluster) -> list[dict[str, Any]]:
    """Returns the jobs that `list --json` prints."""
    return [json.loads(line) for line in (await command(cluster, "list", "--json")).stdout.splitlines()]


async def test_jobs_are_listed_shown_cancelled_and_written(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Jobs are listed, shown and cancelled, and their results are written; impossible requests end with exit code 1."""
    gateway = await cluster.start_gateway()
    result = await command(cluster, "list")
    assert (result.exit_code, f"there is no queue {cluster.queue}" in result.stderr) == (1, True)
    first, second = create_job(gateway, ["a", "", "b"]), create_job(gateway, ["c"] * 40)
    assert [(each["id"], each["status"], each["n"]) for each in await list_jobs(cluster)] == [
        (second, "queued", 40),
        (first, "queued", 3),
    ]
    assert "is queued: try again when" in (await command(cluster, "results", first, "-o", f"{tmp_path}/v.npy")).stderr
    assert "cancelled, 0 of 40" in (await command(cluster, "cancel", second)).stdout
    assert "was cancelled, so it has" in (await command(cluster, "results", second, "-o", f"{tmp_path}/v.npy")).stderr
    assert (await command(cluster, "cancel", second)).exit_code == 1
    assert (await command(cluster, "show", f"{cluster.queue}.{'0' * 32}")).exit_code == 1
    await cluster.start_worker()
    await wait_until(lambda: status(gateway, first) == "done", "the job is done")
    table = (await command(cluster, "list")).stdout
    assert "2 jobs" in table
    assert re.search(r"Results of jobs, with those to come, take \d\.\d kB in Redis\.", table)
    assert first.rpartition(".")[2] in table.replace("\n", "")  # the queue of a test has a long name
    text = (await command(cluster, "show", first)).stdout
    assert "input 1" in text
    assert "invalid_request: The text is empty." in text
    record = json.loads((await command(cluster, "show", first.rpartition(".")[2], "--json")).stdout)
    assert (record["done"], record["failed"], record["errors"][0]["index"]) == (2, 1, 1)
    assert (await command(cluster, "results", first, "-o", str(tmp_path / "v.jsonl"))).exit_code == 1
    result = await command(cluster, "results", first, "-o", str(tmp_path / "v.npy"))
    assert "2 of 3 vectors of 384 numbers" in result.stdout
    error = f"{first}: 1 of 3 inputs has no result; input 1: The text is empty. `redbatch jobs show` has all errors.\n"
    assert (result.exit_code, result.stderr) == (1, f"redbatch: {error}")
    vectors = np.load(tmp_path / "v.npy")
    assert [vectors[0].tobytes(), vectors[2].tobytes()] == [null_vector("a"), null_vector("b")]
    assert np.isnan(vectors[1]).all()
    (tmp_path / "v.npy").write_text("mine")
    result = await command(cluster, "results", first, "-o", str(tmp_path / "v.npy"))
    assert (result.exit_code, "--force" in result.stderr, (tmp_path / "v.npy").read_text()) == (2, True, "mine")
    assert (await command(cluster, "results", first, "-o", str(tmp_path / "v.npy"), "--force")).exit_code == 1
    assert (np.load(tmp_path / "v.npy")[0] == vectors[0]).all()


@pytest.mark.leaves_anything
async def test_the_jobs_of_all_queues_are_listed(cluster: GatewayCluster) -> None:
    """Without --queue, `list` merges the queues that workers announced, newest job first."""
    other = f"{cluster.queue}-b"
    gateways = await asyncio.gather(cluster.start_gateway(), cluster.start_gateway(queue=other))
    await asyncio.gather(cluster.start_worker(), cluster.start_worker(queue=other))
    jobs = []
    for gateway in (*gateways, gateways[0]):
        jobs.append(create_job(gateway, ["a"]))
        await wait_until(partial(is_done, gateway, jobs[-1]), "the job is done")
    words = ["jobs", "list", "--redis-url", as_user(cluster.redis_url, "admin")]
    listed = (await asyncio.to_thread(CliRunner().invoke, app, [*words, "--json"])).stdout.splitlines()
    assert [job for job in (json.loads(line)["id"] for line in listed) if job in jobs] == jobs[::-1]
    table = (await asyncio.to_thread(CliRunner().invoke, app, [*words, "--most", "2"])).stdout
    ids = [job.rpartition(".")[2] for job in jobs]
    assert ("All queues: " in table, [each in table.replace("\n", "") for each in ids]) == (True, [False, True, True])


@pytest.mark.leaves_anything
async def test_the_list_says_how_many_jobs_it_leaves_out(cluster: GatewayCluster) -> None:
    """Under the rows of `list` stand the number of older jobs and the option that shows them, if there are any."""
    gateway = await cluster.start_gateway()
    for _ in range(3):
        create_job(gateway, ["a"])
    table = (await command(cluster, "list", "--most", "2")).stdout
    assert ("3 jobs" in table, "and 1 older: --most 3 shows all" in table) == (True, True)
    table = (await command(cluster, "list", "--most", "3")).stdout
    assert ("3 jobs" in table, "older" in table) == (True, False)


@pytest.mark.leaves_anything
async def test_results_are_deleted_after_confirmation(cluster: GatewayCluster) -> None:
    """`cancel` asks before it deletes the results of a job that is done; without an answer it deletes nothing."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    job = create_job(gateway, ["a"])
    await wait_until(lambda: is_done(gateway, job), "the job is done")
    refused = await command(cluster, "cancel", job, answer="n\n")
    assert (refused.exit_code, f"{job} is done. Delete its results permanently?" in refused.output) == (0, True)
    assert (await command(cluster, "cancel", job)).exit_code == 1, "standard input has ended"
    assert status(gateway, job) == "done"
    as_json = await command(cluster, "cancel", job, "--json", answer="n\n")
    assert (as_json.exit_code, json.loads(as_json.stdout.splitlines()[-1])["status"]) == (0, "done")
    assert "Delete its results" not in as_json.stdout
    assert "its results are deleted; it was done" in (await command(cluster, "cancel", job, answer="y\n")).output
    assert status(gateway, job) == "deleted"


@pytest.mark.leaves_anything
async def test_deleted_jobs_are_listed_only_on_request(cluster: GatewayCluster) -> None:
    """They have no results: `redbatch embed` leaves one of each slice. They take no place of other jobs in the list."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    jobs = [create_job(gateway, ["a"]) for _ in range(4)]
    await wait_until(lambda: all(is_done(gateway, job) for job in jobs), "the jobs are done")
    for job in jobs[2:]:
        cancelled = await command(cluster, "cancel", job, "--yes", "--json")
        record = json.loads(cancelled.stdout)
        assert (cancelled.exit_code, record["id"], record["status"], record["done"]) == (0, job, "deleted", 1)
    assert [each["id"] for each in await list_jobs(cluster)] == jobs[1::-1]
    in_json = await command(cluster, "list", "--json", "--most", "1")
    assert (in_json.stdout.count("\n"), in_json.stderr.splitlines()) == (
        1,
        ["and 1 older: --most 2 shows all", "and 2 deleted: --all shows them"],
    )
    table = (await command(cluster, "list", "--most", "1")).stdout
    hints = ("2 jobs", "and 1 older: --most 2 shows all", "and 2 deleted: --all shows them")
    assert [each in table for each in hints] == [True, True, True]
    listed = (await command(cluster, "list", "--json", "--all")).stdout.splitlines()
    assert [(each["id"], each["status"]) for each in map(json.loads, listed)] == [
        (job, "deleted" if job in jobs[2:] else "done") for job in jobs[::-1]
    ]
    assert "deleted: --all" not in (await command(cluster, "list", "--all")).stdout


async def consume_with_kills(
    words: Sequence[str],
    create: Callable[[int], Awaitable[tuple[str, list[Any]]]],
    files: Callable[[], Iterable[Path]],
) -> dict[str, list[Any]]:
    """Creates 30 jobs beside a consumer that is killed after each sixth; waits until there is a file for each job.

    Returns the inputs of the jobs by their ids, as `create` returned them.
    """
    jobs: dict[str, list[Any]] = {}
    consumer = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        for number in range(30):
            job, inputs = await create(number)
            jobs[job] = inputs
            if number % 6 == 5:
                consumer.send_signal(signal.SIGKILL)
                consumer.wait()
                consumer = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        await wait_until(lambda: {path.stem for path in files()} == set(jobs), "all files exist", timeout_s=60)
    finally:
        consumer.kill()
        consumer.wait()
    return jobs


@pytest.mark.leaves_anything
async def test_the_example_consumer_survives_a_kill(cluster: GatewayCluster, tmp_path: Path) -> None:
    """After any number of kills, there is a complete file for each job that is done."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("simulated:base_ms=5,item_ms=0"))
    words = [sys.executable, str(EXAMPLE), "--redis", as_user(cluster.redis_url, "results"), "--queue", cluster.queue]
    words += ["--gateway", gateway.url, "--into", str(tmp_path)]

    async def create(number: int) -> tuple[str, list[str]]:
        texts = [f"job {number} text {i}" for i in range(200)]
        await asyncio.sleep(0.05)
        return create_job(gateway, texts).rpartition(".")[2], texts

    jobs = await consume_with_kills(words, create, lambda: tmp_path.glob("*.npy"))
    for job, texts in jobs.items():
        assert [row.tobytes() for row in np.load(tmp_path / f"{job}.npy")] == list(map(null_vector, texts))
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client:
        assert client.xpending(cluster.keys.results, "downstream")["pending"] <= 10


async def start_echo(cluster: GatewayCluster) -> GatewayProcess:
    """Starts a gateway and a worker with the echo function; returns when both are ready."""
    cluster.environment["PYTHONPATH"] = str(EXAMPLE.parents[2])
    gateway, _ = await asyncio.gather(cluster.start_gateway(max_inline_bytes=20_000), cluster.start_worker(ECHO))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway


def create_function_job(gateway: GatewayProcess, inputs: list[Any]) -> str:
    """Creates a job of a function; returns its id without the queue."""
    answer = plain_http.post(f"{gateway.url}/jobs", json={"inputs": inputs})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"].rpartition(".")[2])


@pytest.mark.leaves_anything
async def test_the_example_consumer_needs_no_gateway_for_results_in_the_stream(
    cluster: GatewayCluster, tmp_path: Path
) -> None:
    """Killed half-way and started again, it has the outputs and errors of every job of a function, from Redis alone."""
    gateway = await start_echo(cluster)
    words = [sys.executable, str(EXAMPLE), "--redis", as_user(cluster.redis_url, "results"), "--queue", cluster.queue]
    words += ["--into", str(tmp_path)]

    async def create(number: int) -> tuple[str, list[Any]]:
        inputs = [f"job {number} input {i}" for i in range(40)] + ["!refuse", None]
        return create_function_job(gateway, inputs), inputs

    jobs = await consume_with_kills(words, create, lambda: tmp_path.glob("*.json"))
    for job, inputs in jobs.items():
        document = json.loads((tmp_path / f"{job}.json").read_text())
        assert [output and output[0] for output in document["outputs"]] == [*inputs[:40], None, None]
        assert [(each["index"], each["code"]) for each in document["errors"]] == [(40, "invalid_request")]


@pytest.mark.leaves_anything
async def test_outputs_of_a_function_are_written_and_linked(cluster: GatewayCluster, tmp_path: Path) -> None:
    """`results` writes outputs as JSON lines; the example fetches those that are too large for the stream."""
    gateway = await start_echo(cluster)
    out, large = tmp_path / "outputs.jsonl", "x" * 30_000
    job = create_function_job(gateway, [large, "!refuse", *range(70), "!refuse"])
    await wait_until(lambda: status(gateway, f"{cluster.queue}.{job}") == "done", "the job is done")
    assert (await command(cluster, "results", job, "-o", f"{out}.npy")).exit_code == 1
    result = await command(cluster, "results", job, "-o", str(out))
    assert (result.exit_code, "71 of 73 results" in result.stdout) == (1, True)
    assert "2 of 73 inputs have no result; input 1: Not this one. `redbatch jobs show`" in result.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line and line[0] for line in lines] == [large, None, *range(70), None]
    words = [sys.executable, str(EXAMPLE), "--redis", as_user(cluster.redis_url, "results"), "--queue", cluster.queue]
    words += ["--into", str(tmp_path)]
    assert (await asyncio.to_thread(subprocess.run, words, check=False, capture_output=True)).returncode == 1
    consumer = subprocess.Popen([*words, "--gateway", gateway.url], stdout=subprocess.DEVNULL)
    try:
        await wait_until((tmp_path / f"{job}.json").exists, "the linked results are written")
    finally:
        consumer.kill()
        consumer.wait()
    document = json.loads((tmp_path / f"{job}.json").read_text())
    assert document["outputs"] == lines
    assert [each["index"] for each in document["errors"]] == [1, 72]


@pytest.mark.leaves_anything
async def test_the_example_finds_the_running_up(
    cluster: GatewayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any URL, the example reads from the `up` of its user, and fetches from its gateway; else it says how."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE.parents[2]))
    words = [sys.executable, str(EXAMPLE), "--into", str(tmp_path / "into")]
    result = await asyncio.to_thread(subprocess.run, words, check=False, capture_output=True, text=True)
    assert (result.returncode, "--redis-url" in result.stderr) == (1, True)
    gateway, _ = await asyncio.gather(cluster.start_gateway(max_inline_bytes=1_000), cluster.start_worker())
    redis_url = as_user(cluster.redis_url, "results")
    announcements = [
        Announcement(RunFile(1, gateway.url, redis_url, cluster.queue)),
        Announcement(RunFile(2, "http://127.0.0.1:1", "redis://127.0.0.1:1/0", "another")),
    ]
    result = await asyncio.to_thread(subprocess.run, words, check=False, capture_output=True, text=True)
    assert (result.returncode, "--up 1 (another" in result.stderr) == (1, True)
    job = create_job(gateway, ["a"]).rpartition(".")[2]
    consumer = subprocess.Popen([*words, "--up", gateway.url.rpartition(":")[2]], stdout=subprocess.DEVNULL)
    try:
        await wait_until((tmp_path / "into" / f"{job}.npy").exists, "the vectors are written", timeout_s=30)
    finally:
        consumer.kill()
        consumer.wait()
        for each in announcements:
            each.withdraw()
    assert np.load(tmp_path / "into" / f"{job}.npy")[0].tobytes() == null_vector("a")


def test_outside_its_environment_the_example_says_what_it_needs() -> None:
    """A Python without its packages is one line, with the command that activates one with them."""
    words = [sys.executable, "-S", str(EXAMPLE)]
    result = subprocess.run(words, check=False, capture_output=True, text=True, env={})
    assert (result.returncode, result.stderr.count("\n"), "source .venv/bin/activate" in result.stderr) == (1, 1, True)


@contextmanager
def running_example(cluster: GatewayCluster, into: Path, *options: str) -> Iterator[Path]:
    """Runs the example on the queue of a cluster; yields the file of its output, which has its errors too."""
    words = [sys.executable, str(EXAMPLE), "--redis-url", as_user(cluster.redis_url, "results")]
    words += ["--queue", cluster.queue, "--into", str(into), *options]
    log = into / "consumer.log"
    with log.open("wb") as file:
        consumer = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield log
    finally:
        consumer.kill()
        consumer.wait()


def num_pending(cluster: GatewayCluster) -> int:
    """Returns the number of entries that the group of the example has received and not acknowledged."""
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client:
        return int(client.xpending(cluster.keys.results, "downstream")["pending"])


@pytest.mark.leaves_anything
async def test_the_example_keeps_results_pending_until_it_can_store_them(
    cluster: GatewayCluster, tmp_path: Path
) -> None:
    """Results of a named tenant outlast a gateway that is away and a foreign key, and delay no other results."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    job = create_job(gateway, ["a"], x_tenant="bob").rpartition(".")[2]
    with running_example(cluster, tmp_path, "--gateway", "http://127.0.0.1:1") as log:
        await wait_until(lambda: "stays pending" in log.read_text(), "the gateway is out of reach", timeout_s=30)
        assert num_pending(cluster) == 1
    with running_example(cluster, tmp_path, "--gateway", gateway.url, "--key", "other.secret") as log:
        await wait_until(lambda: "Its owner is 'bob'" in log.read_text(), "the key is another's", timeout_s=30)
        own = create_job(gateway, ["b"]).rpartition(".")[2]
        await wait_until((tmp_path / f"{own}.npy").exists, "the next job is stored", timeout_s=30)
        assert num_pending(cluster) == 1
    assert {path.name for path in tmp_path.iterdir()} == {f"{own}.npy", "consumer.log"}
    with running_example(cluster, tmp_path, "--gateway", gateway.url) as log:
        await wait_until(lambda: num_pending(cluster) == 0, "all results are stored", timeout_s=30)
        assert f"{job}.npy: done" in log.read_text()
    assert np.load(tmp_path / f"{job}.npy")[0].tobytes() == null_vector("a")


@pytest.mark.leaves_anything
async def test_the_example_tries_pending_results_again(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Without a restart it stores results that it could not fetch at first, also more than it reads at once."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    jobs = [create_job(gateway, ["a"]) for _ in range(12)]
    await wait_until(lambda: all(is_done(gateway, job) for job in jobs), "the jobs are done")
    port = gateway.port
    await gateway.program.stop()
    with running_example(cluster, tmp_path, "--gateway", gateway.url) as log:
        last = jobs[-1].rpartition(".")[2]
        await wait_until(lambda: f"{last}: not stored" in log.read_text(), "the gateway is away", timeout_s=30)
        await cluster.start_gateway(port=port)
        await wait_until(lambda: num_pending(cluster) == 0, "all results are stored", timeout_s=30)
    assert len(list(tmp_path.glob("*.npy"))) == len(jobs)


@pytest.mark.leaves_anything
async def test_the_example_says_what_became_of_a_job(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Lost results, and those of failed inputs, are acknowledged and named; an unreachable Redis is one line."""
    gateway = await cluster.start_gateway()
    failed = create_job(gateway, ["a"], {"prompt_name": "unknown"})  # no worker has reported its prompts yet
    expired, deleted = create_job(gateway, ["a"]), create_job(gateway, ["a"])
    partial = create_job(gateway, ["a", "", "b"])
    await cluster.start_worker()
    await wait_until(lambda: status(gateway, expired) == status(gateway, deleted) == "done", "the jobs are done")
    assert (await command(cluster, "cancel", deleted, "--yes")).exit_code == 0
    await wait_until(lambda: status(gateway, failed) == "failed", "the job has failed")
    await wait_until(lambda: status(gateway, partial) == "done", "the job of which a part fails is done")
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client:
        client.delete(cluster.keys.job(expired.rpartition(".")[2]))
    with running_example(cluster, tmp_path, "--gateway", gateway.url) as log:
        await wait_until(
            lambda: f"{failed.rpartition('.')[2]}.npy: failed" in log.read_text(), "both are read", timeout_s=30
        )
        await wait_until(lambda: num_pending(cluster) == 0, "both entries are acknowledged")
        assert f"{partial.rpartition('.')[2]}.npy: done, 1 of 3 inputs failed\n" in log.read_text()
        lines = dict(line.split(": ", 1) for line in log.read_text().splitlines())
        assert lines[expired.rpartition(".")[2]] == "done, but its results have expired"
        assert lines[deleted.rpartition(".")[2]] == "done, then deleted, with its results"
    words = [sys.executable, str(EXAMPLE), "--redis-url", "redis://127.0.0.1:1/0", "--into", str(tmp_path)]
    result = await asyncio.to_thread(subprocess.run, words, check=False, capture_output=True, text=True)
    assert (result.returncode, result.stderr.count("\n"), "--redis-url" in result.stderr) == (1, 1, True)


@pytest.mark.leaves_anything
async def test_the_example_refuses_an_unknown_queue(cluster: GatewayCluster, tmp_path: Path) -> None:
    """It would wait for ever. The error lists the queues that there are; one whose workers have left is known."""
    words = [sys.executable, str(EXAMPLE), "--redis-url", as_user(cluster.redis_url, "results")]
    words += ["--into", str(tmp_path), "--queue"]
    worker = await cluster.start_worker()
    unknown = [*words, f"{cluster.queue}-x"]
    result = await asyncio.to_thread(subprocess.run, unknown, check=False, capture_output=True, text=True, timeout=30)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert re.match(
        rf"--queue: there is no queue {cluster.queue}-x: the queues are .*\b{cluster.queue}\b", result.stderr
    )
    await worker.stop()
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client:
        client.zrem(QUEUES, cluster.queue)
    with running_example(cluster, tmp_path) as log:
        await wait_until(lambda: "waiting for results" in log.read_text(), "it waits", timeout_s=30)


async def test_ctrl_c_ends_the_example_in_one_line(cluster: GatewayCluster, tmp_path: Path) -> None:
    """An interrupt ends the consumer with exit code 130 and a line without a traceback."""
    words = [sys.executable, str(EXAMPLE), "--redis-url", as_user(cluster.redis_url, "results")]
    words += ["--queue", cluster.queue, "--into", str(tmp_path)]
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client:
        client.set(cluster.keys.epoch, "1.0")  # otherwise there is no such queue
    # A shell starts what runs in the background with SIGINT ignored, and so all that the suite starts then.
    consumer = subprocess.Popen(["env", "--default-signal=INT", *words], stderr=subprocess.PIPE, text=True)
    try:
        with redis.Redis.from_url(cluster.redis_url, protocol=2) as client:
            await wait_until(lambda: client.exists(cluster.keys.results) == 1, "it reads the stream", timeout_s=30)
        consumer.send_signal(signal.SIGINT)
        _, errors = await asyncio.to_thread(consumer.communicate, timeout=30)
    finally:
        consumer.kill()
        consumer.wait()
    assert (consumer.returncode, errors) == (130, "interrupted\n")


async def test_the_example_waits_for_redis(tmp_path: Path) -> None:
    """While Redis is away, the consumer says so once; when Redis is back without its data, it reads on."""
    keys = Keys("minilm")
    fields = {"id": "0" * 32, "status": "cancelled", "op": "embed", "owner": ""}
    with Server() as server:
        words = [sys.executable, str(EXAMPLE), "--redis-url", as_user(server.url, "results"), "--into", str(tmp_path)]
        log = tmp_path / "consumer.log"
        with log.open("wb") as file:
            consumer = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
        try:
            with redis.Redis.from_url(server.url, protocol=2) as client:
                await wait_until(lambda: client.exists(keys.results) == 1, "it reads the stream", timeout_s=30)
            os.kill(server.pid, signal.SIGKILL)
            await wait_until(lambda: "waiting for Redis" in log.read_text(), "it waits", timeout_s=30)
            server.start()
            await wait_until(lambda: "Redis is back" in log.read_text(), "it noticed", timeout_s=30)
            with redis.Redis.from_url(server.url, protocol=2) as client:
                client.xadd(keys.results, fields)
                await wait_until(lambda: "cancelled, no results" in log.read_text(), "it reads on", timeout_s=30)
                client.delete(keys.results)
                await wait_until(lambda: client.exists(keys.results) == 1, "it makes its group again", timeout_s=30)
            assert consumer.poll() is None
        finally:
            consumer.kill()
            consumer.wait()
    lines = log.read_text().splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "waiting for results",
        "waiting for Redis",
        "Redis is back",
        "0" * 32,
    ]
