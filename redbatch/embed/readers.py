"""Reads texts out of a file: a row for each line or record, with what is wrong with it if it is no text."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PARQUET_ROWS = 8_192
LONGEST_FIELD = 2**31 - 1


class InputRow(NamedTuple):
    """One input: where it stands (line or record, from 1), and its text; or, without one, what is wrong with it."""

    line: int
    text: str | None
    fault: str = ""


class UnreadableFileError(Exception):
    """The file cannot be read as what it is; the message says why."""


def read_rows(path: Path, column: str) -> Iterator[InputRow]:
    """Yields the rows of a file, by what its name ends with: .txt, .jsonl, .csv or .parquet.

    Raises:
        UnreadableFileError: it is none of these, or has no such column.
        OSError: it cannot be opened.
    """
    kinds = {
        ".txt": _text_rows,
        ".jsonl": _json_rows,
        ".ndjson": _json_rows,
        ".csv": _csv_rows,
        ".parquet": _parquet_rows,
    }
    reader = kinds.get(path.suffix.lower())
    if reader is None:
        raise UnreadableFileError(f"{path}: its name has to end with one of {', '.join(kinds)}")
    for row in reader(path, column):
        if row.text == "":
            yield row._replace(text=None, fault="the text is empty")
        elif row.text is not None and not _is_sound(row.text):
            yield row._replace(text=None, fault="the text holds a lone surrogate, which is no character")
        else:
            yield row


def _is_sound(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text_rows(path: Path, _column: str) -> Iterator[InputRow]:
    with path.open("rb") as file:
        for line, raw in enumerate(file, 1):
            try:
                yield InputRow(line, raw.decode("utf-8").rstrip("\r\n"))
            except UnicodeDecodeError:
                yield InputRow(line, None, "not UTF-8")


def _json_rows(path: Path, column: str) -> Iterator[InputRow]:
    with path.open("rb") as file:
        for line, raw in enumerate(file, 1):
            try:
                found = json.loads(raw)
            except (UnicodeDecodeError, ValueError, RecursionError):
                yield InputRow(line, None, "not valid JSON")
                continue
            text = found.get(column) if isinstance(found, dict) else found
            if isinstance(text, str):
                yield InputRow(line, text)
            else:
                yield InputRow(line, None, f"neither a text nor an object with a text under {column!r}")


def _csv_rows(path: Path, column: str) -> Iterator[InputRow]:
    csv.field_size_limit(min(sys.maxsize, LONGEST_FIELD))
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.DictReader(file)
        if column not in (reader.fieldnames or ()):
            columns = ", ".join(reader.fieldnames or ()) or "none"
            raise UnreadableFileError(f"{path} has no column {column!r}: name one with --column. It has {columns}")
        for line, record in enumerate(reader, 1):
            text = record.get(column)
            yield InputRow(line, text) if isinstance(text, str) else InputRow(line, None, "the record has too few fields")


def _parquet_rows(path: Path, column: str) -> Iterator[InputRow]:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise UnreadableFileError("reading .parquet needs pyarrow: pip install pyarrow") from None
    file = pq.ParquetFile(path)
    if column not in file.schema_arrow.names:
        columns = ", ".join(file.schema_arrow.names)
        raise UnreadableFileError(f"{path} has no column {column!r}: name one with --column. It has {columns}")
    line = 0
    for batch in file.iter_batches(PARQUET_ROWS, columns=[column]):
        for text in batch.column(0).to_pylist():
            line += 1
            yield InputRow(line, text) if isinstance(text, str) else InputRow(line, None, "no text")
