"""`redbatch embed` refuses options and files that it cannot use before any request: here nothing answers at the URL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from redbatch.commands import app


def run(source: Path, *options: str) -> Result:
    """Runs `redbatch embed`; an option that begins with v. is a file beside the input."""
    named = [str(source.with_name(each)) if each.startswith("v.") else each for each in options]
    return CliRunner().invoke(app, ["embed", str(source), "--url", "http://127.0.0.1:1", *named])


@pytest.mark.parametrize(
    ("name", "out", "message"),
    [
        ("none.txt", "v.npy", "none.txt: No such file or directory\n"),
        ("a.doc", "v.npy", "must end with one of .txt"),
        ("a.txt", "v.bin", "must end with one of .npy"),
        ("a.csv", "v.npy", "has no column 'text'"),
    ],
)
def test_unusable_files_are_refused(tmp_path: Path, name: str, out: str, message: str) -> None:
    """An unreadable input or unwritable output is an error with exit code 2."""
    for each in ("a.doc", "a.txt", "a.csv"):
        (tmp_path / each).write_text("id,body\n1,x\n")
    done = run(tmp_path / name, "-o", out)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("record", "message"),
    [('2,"open\n', "a quote is not closed"), ('2,"an "odd" one"\n', "',' expected after '\"'")],
)
def test_a_wrong_quote_is_not_a_text(tmp_path: Path, record: str, message: str) -> None:
    """A quote that is not closed would make one text of all rows that follow: the file is refused, with the line."""
    (tmp_path / "a.csv").write_text(f"id,text\n1,x\n{record}3,y\n4,z\n")
    done = run(tmp_path / "a.csv", "-o", "v.npy")
    assert (done.exit_code, "a.csv: the record that begins in line 3 is not CSV: " in done.stderr) == (2, True)
    assert message in done.stderr


@pytest.mark.parametrize(("name", "content"), [("a.txt", ""), ("a.jsonl", ""), ("a.csv", "id,text\n")])
def test_an_empty_input_is_a_failure(tmp_path: Path, name: str, content: str) -> None:
    """Without any row there is nothing to embed: the exit code is 1, and there is no output."""
    (tmp_path / name).write_text(content)
    done = run(tmp_path / name, "-o", "v.npy")
    assert done.exit_code == 1
    assert "is empty: there is nothing to embed" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "v.jsonl", "--keep", "id,titel"), "no column 'titel'. Its columns: id, text, embedding, bad"),
        (("-o", "v.jsonl"), "a column 'embedding'"),
        (("-o", "v.parquet", "--keep", "bad"), "'bad' cannot be a column"),
        (("-o", "v.npy", "--keep", "id"), "a .npy file has vectors alone"),
        (("-o", "v.npy", "--url", "127.0.0.1:8080"), "write it as http://"),
        (("-o", "v.npy", "--format", "parquet"), "not a Parquet file"),
        (("-o", "v.npy", "--truncation-direction", "up"), "left or"),
    ],
)
def test_options_that_cannot_be_met_are_refused(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    """Such options are an error with exit code 2."""
    records = [{"id": 1, "text": "a", "embedding": 1, "bad": 1}, {"id": 2, "text": "b", "embedding": 2, "bad": "x"}]
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in records))
    done = run(source, *options)
    assert done.exit_code == 2, done.stderr
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
