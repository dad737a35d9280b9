"""`redbatch embed` keeps the other columns of its input, whatever the format, and reads standard input."""

from __future__ import annotations

import asyncio
import csv
import datetime as dt
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.embed.embed_command import check_rows, embed
from tests.integration.gateway.gateway_cluster import GatewayCluster, null_vector, vector_bytes

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

TEXTS = ["first", "second", "third \u4e16"]


def lines_of(path: Path) -> list[dict[str, object]]:
    """Returns the records of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def test_json_lines_keep_their_fields(cluster: GatewayCluster, tmp_path: Path) -> None:
    """All fields but the text are kept, also of a row without a vector; --keep chooses fields, and their order.

    A line that is a text has the field `text`.
    """
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    records = [
        {"id": 1, "text": TEXTS[0], "tags": ["a", {"b": None}], "title": "caf\u00e9"},
        {"id": 2**80, "text": TEXTS[1], "title": "\ud800"},
        {"id": 3, "body": "x"},
    ]
    source, out = tmp_path / "a.jsonl", tmp_path / "v.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in records) + json.dumps(TEXTS[2]) + "\n")
    done = await embed(gateway, source, out)
    assert done.returncode == 1, done.stderr
    rows = lines_of(out)
    vectors = [row.pop("embedding") for row in rows]
    assert [vector and vector_bytes(vector) for vector in vectors] == [  # type: ignore[arg-type]
        null_vector(TEXTS[0]),
        null_vector(TEXTS[1]),
        None,
        null_vector(TEXTS[2]),
    ]
    assert "field 'text'" in str(rows[2].pop("error"))
    assert rows == [{k: v for k, v in each.items() if k != "text"} for each in records] + [{}]
    assert "caf\u00e9" in out.read_text(encoding="utf-8")
    done = await embed(gateway, source, out, "--keep", "title, text", "--force")
    assert [list(row) for row in lines_of(out)] == [
        ["title", "text", "embedding"],
        ["title", "text", "embedding"],
        ["embedding", "error"],
        ["text", "embedding"],
    ]


async def test_csv_and_parquet_keep_their_columns(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Columns of CSV are texts; those of Parquet keep their types, and in JSON become what JSON has."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "body", "title"], *([i, text, "t"] for i, text in enumerate(TEXTS))])
    done = await embed(gateway, tmp_path / "a.csv", tmp_path / "a.parquet", "--column", "body")
    assert done.returncode == 0, done.stderr
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["id", "title", "embedding", "error"]
    assert table["id"].to_pylist() == ["0", "1", "2"]
    day = dt.datetime(2026, 11, 24, tzinfo=dt.UTC)
    kept = pa.table(
        {
            "at": pa.array([day] * 3, pa.timestamp("ns", "UTC")),
            "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
            "n": pa.array([1, None, 3], pa.uint8()),
        }
    )
    pq.write_table(kept.append_column("text", pa.array(TEXTS)), tmp_path / "b.parquet")
    done = await embed(gateway, tmp_path / "b.parquet", tmp_path / "c.parquet", "--slice", "2")
    assert done.returncode == 0, done.stderr
    table = pq.read_table(tmp_path / "c.parquet")
    assert table.select(kept.column_names).cast(kept.schema).equals(kept)
    assert [vector_bytes(each) for each in table["embedding"].to_pylist()] == list(map(null_vector, TEXTS))
    done = await embed(gateway, tmp_path / "b.parquet", tmp_path / "c.jsonl", "--keep", "n,kind,at")
    assert done.returncode == 0, done.stderr
    assert {k: v for k, v in lines_of(tmp_path / "c.jsonl")[1].items() if k != "embedding"} == {
        "n": None,
        "kind": "b",
        "at": "2026-11-24T00:00:00+00:00",
    }


async def test_json_lines_become_parquet(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Each column gets a type that fits all of its values, over several slices."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    source, out = tmp_path / "a.jsonl", tmp_path / "v.parquet"
    records = [
        {"text": f"text {i}", "n": i if i < 9_000 else i / 2, **({"late": "x"} if i == 9_999 else {})}
        for i in range(10_000)
    ]
    source.write_text("".join(json.dumps(each) + "\n" for each in records))
    done = await embed(gateway, source, out, "--slice", "3000")
    assert done.returncode == 0, done.stderr
    table = pq.read_table(out)
    assert table["n"].to_pylist() == [each["n"] for each in records]
    assert table["late"].to_pylist() == [None] * 9_999 + ["x"]
    check_rows(np.array(table["embedding"].to_pylist(), dtype="<f4"), [str(each["text"]) for each in records])


async def test_standard_input(cluster: GatewayCluster, tmp_path: Path) -> None:
    """`-` reads lines of text, or JSON lines if the first line is one; --format chooses another; no copy stays."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    out = tmp_path / "v.npy"
    lines = "".join(f"{text}\n" for text in TEXTS).encode()
    records = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
    table = "".join(f"{i},{text}\n" for i, text in [("id", "text"), *enumerate(TEXTS)]).encode()
    for stdin, options in ((lines, ()), (records, ()), (table, ("--format", "csv"))):
        done = await embed(gateway, "-", out, "--force", *options, stdin=stdin)
        assert done.returncode == 0, done.stderr
        check_rows(np.load(out), list(TEXTS))
        assert [path.name for path in tmp_path.iterdir()] == ["v.npy"]
    done = await embed(gateway, "-", out, "--force", "--format", "txt", stdin=records)
    check_rows(np.load(out), records.decode().splitlines())
