"""Readers of input files: one row per line or record, with a fault in place of an invalid text."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PARQUET_ROWS = 8_192
MAX_FIELD_CHARS = 2**31 - 1


class InputRow(NamedTuple):
    """One input: its line or record number, from 1, and its text; if the text is None, the fault."""

    line: int
    text: str | None
    fault: str = ""


class UnreadableFileError(Exception):
    """The file cannot be read in its format; the message says why."""


def read_rows(path: Path, column: str) -> Iterator[InputRow]:
    """Yields the rows of a file. The suffix of its name selects the format: .txt, .jsonl, .ndjson, .csv or .parquet.

    Raises:
        UnreadableFileError: the suffix is unknown, or the file has no such column.
        OSError: the file cannot be opened.
    """
    readers = {
        ".txt": _text_rows,
        ".jsonl": _json_rows,
        ".ndjson": _json_rows,
        ".csv": _csv_rows,
        ".parquet": _parquet_rows,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UnreadableFileError(f"{path}: the name must end with one of {', '.join(readers)}")
    for row in reader(path, column):
        if row.text == "":
            yield row._replace(text=None, fault="the text is empty")
        elif row.text is not None and not _is_valid(row.text):
            yield row._replace(text=None, fault="the text contains a lone surrogate, which is not a character")
        else:
            yield row


def _is_valid(text: str) -> bool:
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
                value = json.loads(raw)
            except (UnicodeDecodeError, ValueError, RecursionError):
                yield InputRow(line, None, "not valid JSON")
                continue
            text = value.get(column) if isinstance(value, dict) else value
            if isinstance(text, str):
                yield InputRow(line, text)
            else:
                yield InputRow(line, None, f"neither a text nor an object with a text in the field {column!r}")


def _csv_rows(path: Path, column: str) -> Iterator[InputRow]:
    csv.field_size_limit(min(sys.maxsize, MAX_FIELD_CHARS))
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.DictReader(file)
        if column not in (reader.fieldnames or ()):
            columns = ", ".join(reader.fieldnames or ()) or "none"
            raise UnreadableFileError(
                f"{path} has no column {column!r}: choose one with --column. Its columns: {columns}"
            )
        for line, record in enumerate(reader, 1):
            text = record.get(column)
            yield (
                InputRow(line, text) if isinstance(text, str) else InputRow(line, None, "the record has too few fields")
            )


def _parquet_rows(path: Path, column: str) -> Iterator[InputRow]:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise UnreadableFileError(
            "reading .parquet needs pyarrow: pip install -e '.[parquet]' in the checkout"
        ) from None
    file = pq.ParquetFile(path)
    if column not in file.schema_arrow.names:
        columns = ", ".join(file.schema_arrow.names)
        raise UnreadableFileError(f"{path} has no column {column!r}: choose one with --column. Its columns: {columns}")
    line = 0
    for batch in file.iter_batches(PARQUET_ROWS, columns=[column]):
        for text in batch.column(0).to_pylist():
            line += 1
            yield InputRow(line, text) if isinstance(text, str) else InputRow(line, None, "not a text")
