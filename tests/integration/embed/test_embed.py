"""`redbatch embed`: the vectors of a whole file, also across kills and outages."""

from __future__ import annotations

import asyncio
import csv
import json
import signal
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from tests.integration.embed.embed_command import check_rows, command, embed
from tests.integration.gateway.gateway_cluster import GatewayCluster, log_lines, null_vector, vector_bytes
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]


async def test_a_file_of_lines(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Rows keep their order over several jobs; an invalid line is an empty row and is listed in the errors."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    texts: list[str | None] = [f"text {i} \u00e9" for i in range(1_000)]
    lines = [json.dumps(text if i % 2 else {"text": text, "id": i}) for i, text in enumerate(texts)]
    for at, line in (
        (0, ""),
        (500, "{"),
        (501, '{"body": "a"}'),
        (999, '""'),
        (700, json.dumps("x" * 200_000)),
        (800, r'"\ud800"'),
    ):
        lines[at], texts[at] = line, None
    source, out = tmp_path / "texts.jsonl", tmp_path / "vectors.npy"
    source.write_text("\n".join(lines) + "\n")
    done = await embed(gateway, source, out, "--slice", "128")
    assert done.returncode == 1, done.stderr
    assert "994 of 1,000 texts have vectors" in done.stderr
    first = f"6 have no vector, the first is line 1: not valid JSON. All errors are in {out}.errors.jsonl."
    assert first in done.stderr
    check_rows(np.load(out), texts)
    faults = [json.loads(line) for line in (tmp_path / "vectors.npy.errors.jsonl").read_text().splitlines()]
    assert [each["line"] for each in faults] == [1, 501, 502, 701, 801, 1_000]
    assert "too_large" in faults[3]["error"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "texts.jsonl",
        "vectors.npy",
        "vectors.npy.errors.jsonl",
    ]


async def test_a_blank_line_is_named(cluster: GatewayCluster, tmp_path: Path) -> None:
    """The command says which line has no vector, and why."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    source, out = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    source.write_text("one\n\ntwo\n")
    done = await embed(gateway, source, out)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        f"1 has no vector: line 2: the text is empty. The error is in {out}.errors.jsonl.",
    )


async def test_every_format_is_read_and_written(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Text, CSV and Parquet files are read; JSON lines and Parquet files are written."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    texts = [f"text, {i}\t\u4e16" for i in range(50)]
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in texts))
    with (tmp_path / "b.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "body"], *([i, text] for i, text in enumerate(texts))])
    pq.write_table(pa.table({"body": [*texts[:-1], None]}), tmp_path / "c.parquet")
    assert (await embed(gateway, tmp_path / "a.txt", tmp_path / "a.jsonl")).returncode == 0
    records = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [vector_bytes(each["embedding"]) for each in records] == list(map(null_vector, texts))
    assert (await embed(gateway, tmp_path / "b.csv", tmp_path / "b.parquet", "--column", "body")).returncode == 0
    table = pq.read_table(tmp_path / "b.parquet")
    assert [vector_bytes(each) for each in table["embedding"].to_pylist()] == list(map(null_vector, texts))
    assert (
        await embed(gateway, tmp_path / "c.parquet", tmp_path / "c.parquet.out.parquet", "--column", "body")
    ).returncode == 1
    table = pq.read_table(tmp_path / "c.parquet.out.parquet")
    assert [each and vector_bytes(each) for each in table["embedding"].to_pylist()] == [
        *map(null_vector, texts[:-1]),
        None,
    ]
    assert table["error"].to_pylist() == [*[None] * 49, "not a text"]
    assert not [line for line in log_lines(gateway.program) if line["msg"] == "request refused"]


async def test_errors_name_lines_of_the_csv_file(cluster: GatewayCluster, tmp_path: Path) -> None:
    """The header, blank lines and line breaks inside fields count: an editor shows the error at the line it names."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    source, out = tmp_path / "a.csv", tmp_path / "v.jsonl"
    source.write_text('id,text\n1,\n2,b\n\n3,"c\nc"\n4\n5,"e\n"\n6,""\n')
    done = await embed(gateway, source, out)
    assert done.returncode == 1, done.stderr
    faults = [json.loads(line) for line in (tmp_path / "v.jsonl.errors.jsonl").read_text().splitlines()]
    assert [(each["line"], each["error"]) for each in faults] == [
        (2, "the text is empty"),
        (7, "the record has too few fields"),
        (10, "the text is empty"),
    ]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in rows] == list("123456")
    assert vector_bytes(rows[2]["embedding"]) == null_vector("c\nc")


async def test_a_killed_run_is_resumed(cluster: GatewayCluster, tmp_path: Path) -> None:
    """After a kill, finished slices are not requested again, and jobs in flight are found again."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("simulated:base_ms=0,item_ms=2"))
    texts = [f"text {i}" for i in range(1_500)]
    source, out = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    source.write_text("\n".join(texts))
    options = ("--slice", "100", "--in-flight", "2")
    process = subprocess.Popen(command(gateway, source, out, *options), stderr=subprocess.DEVNULL)
    parts = tmp_path / "vectors.npy.part"
    await wait_until(lambda: len(list(parts.glob("*.npy"))) >= 3, "some slices are finished", timeout_s=60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    saved = {path.name: path.stat().st_mtime_ns for path in parts.glob("*.npy")}
    assert not out.exists()
    done = await embed(gateway, source, out, *options)
    assert done.returncode == 0, done.stderr
    assert "Resuming" in done.stderr
    check_rows(np.load(out), texts)
    assert not parts.exists()
    assert len(saved) >= 3
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client:
        assert client.zcard(cluster.keys.all_jobs) == 15
        assert client.zcard(cluster.keys.kept) <= 2, "the job of a saved slice is deleted, except at the kill"


async def test_an_expired_job_is_a_failure(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Texts of an expired job that never ran are listed in the errors, and their rows are empty."""
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(job_timeout_s=4), cluster.start_worker("simulated:base_ms=0,item_ms=20", max_batch_size=8)
    )
    source, out = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    source.write_text("\n".join(f"text {i}" for i in range(600)))
    done = await embed(gateway, source, out)
    assert done.returncode == 1, done.stderr
    missing = np.flatnonzero(np.isnan(np.load(out)).any(axis=1))
    faults = [json.loads(line) for line in (tmp_path / "vectors.npy.errors.jsonl").read_text().splitlines()]
    assert 0 < len(missing) < 600
    assert [each["line"] - 1 for each in faults] == list(missing)


@pytest.mark.leaves_anything  # an upload that the kill cut off, for two minutes
async def test_a_gateway_that_restarts_is_retried(cluster: GatewayCluster, tmp_path: Path) -> None:
    """While the gateway is down, requests are retried until it answers."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("simulated:base_ms=0,item_ms=2"))
    texts = [f"text {i}" for i in range(1_000)]
    source, out = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    source.write_text("\n".join(texts))
    running = asyncio.create_task(embed(gateway, source, out, "--slice", "100"))
    parts = tmp_path / "vectors.npy.part"
    await wait_until(lambda: any(parts.glob("*.npy")), "a slice is finished", timeout_s=60)
    gateway.program.kill()
    await asyncio.sleep(0.5)
    await cluster.start_gateway(port=gateway.port)
    done = await running
    assert done.returncode == 0, done.stderr
    check_rows(np.load(out), texts)


async def test_a_slice_without_an_embeddable_text_is_a_failure(cluster: GatewayCluster, tmp_path: Path) -> None:
    """The gateway refuses its job; its rows are empty, each with an error, and the other slices have their vectors."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(max_input_chars=100), cluster.start_worker())
    source, out = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    source.write_text("\n".join([*["x" * 101] * 10, *(f"text {i}" for i in range(10))]))
    done = await embed(gateway, source, out, "--slice", "10")
    assert done.returncode == 1, done.stderr
    vectors = np.load(out)
    assert np.isnan(vectors[:10]).all()
    check_rows(vectors[10:], [f"text {i}" for i in range(10)])
    faults = [json.loads(line) for line in (tmp_path / "vectors.npy.errors.jsonl").read_text().splitlines()]
    assert [each["line"] for each in faults] == list(range(1, 11))
    assert "101 characters" in faults[0]["error"]
