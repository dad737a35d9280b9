"""Readers of input files: one row per line or record, with a fault in place of an invalid text."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

PARQUET_ROWS = 8_192
MAX_FIELD_CHARS = 2**31 - 1

TXT, JSONL, CSV, PARQUET = "txt", "jsonl", "csv", "parquet"
FORMATS = {".txt": TXT, ".jsonl": JSONL, ".ndjson": JSONL, ".csv": CSV, ".parquet": PARQUET}
"""The format of a file, by the suffix of its name."""


Content = str | dict[str, str]
"""What a job gets of a row, as a line of JSON: a text, or a query and a text."""


class InputRow(NamedTuple):
    """One input: its first line in the file, or its record in a Parquet file, from 1; its text, or if None, the fault.

    `columns` has the values of its columns or fields by name, the text's as well. `query` is what a reranker scores the
    text by, None without one.
    """

    line: int
    text: str | None
    fault: str = ""
    columns: Mapping[str, Any] = {}
    query: str | None = None

    @property
    def content(self) -> Content:
        """What a job gets of a row that has no fault."""
        text = self.text or ""
        return text if self.query is None else {"query": self.query, "text": text}


class InputFile(NamedTuple):
    """A file of texts: its path, its format, the column that has the text, and its name in messages.

    `query` is that of all rows, and `query_column` the column that has it; without either, rows have none.
    """

    path: Path
    format: str
    column: str
    name: str
    query: str | None = None
    query_column: str | None = None


class UnreadableFileError(Exception):
    """The file cannot be read in its format; the message says why."""


def format_of(path: Path) -> str:
    """Returns the format of a file by the suffix of its name. Raises UnreadableFileError: the suffix is unknown."""
    if path.suffix.lower() not in FORMATS:
        raise UnreadableFileError(f"{path}: the name must end with one of {', '.join(FORMATS)}, or give --format")
    return FORMATS[path.suffix.lower()]


def read_rows(file: InputFile, names: Sequence[str] = ()) -> Iterator[InputRow]:
    """Yields the rows of a file; of a Parquet file with the columns in `names`, of others with all of them.

    Raises:
        UnreadableFileError: the file is not of its format, or has no column for the text or the query.
        OSError: the file cannot be opened.
    """
    if file.format == PARQUET:
        rows = _parquet_rows(file, names)
    else:
        rows = {TXT: _text_rows, JSONL: _json_rows, CSV: _csv_rows}[file.format](file)
    for row in rows:
        fault = "" if row.text is None else _fault_of(row.text, "text")
        if not fault and file.query_column is not None and row.text is not None:
            query = row.columns.get(file.query_column)
            fault = _fault_of(query, "query") if isinstance(query, str) else f"no text in {file.query_column!r}"
            yield row._replace(text=None, fault=fault) if fault else row._replace(query=query)
        else:
            yield row._replace(text=None, fault=fault) if fault else row._replace(query=file.query)


def parquet_names(file: InputFile) -> list[str]:
    """Returns the names of all columns of a Parquet file. Raises UnreadableFileError."""
    names: list[str] = open_parquet(file).schema_arrow.names
    return names


def open_parquet(file: InputFile) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Returns an open Parquet file. Raises UnreadableFileError: it is none, or pyarrow is not installed."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise UnreadableFileError(
            "reading .parquet needs pyarrow: pip install -e '.[parquet]' in the checkout"
        ) from None
    try:
        return pq.ParquetFile(file.path)
    except ValueError as error:
        raise UnreadableFileError(f"{file.name} is not a Parquet file: {error}") from None


def _fault_of(text: str, name: str) -> str:
    """Returns why a text or a query cannot be sent; "" if it can."""
    if not text:
        return f"the {name} is empty"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"the {name} contains a lone surrogate, which is not a character"
    return ""


def _text_rows(file: InputFile) -> Iterator[InputRow]:
    with file.path.open("rb") as lines:
        for line, raw in enumerate(lines, 1):
            try:
                text = raw.decode("utf-8").rstrip("\r\n")
                yield InputRow(line, text, "", {file.column: text})
            except UnicodeDecodeError:
                yield InputRow(line, None, "not UTF-8")


def _json_rows(file: InputFile) -> Iterator[InputRow]:
    fault = f"neither a text nor an object with a text in the field {file.column!r}"
    with file.path.open("rb") as lines:
        for line, raw in enumerate(lines, 1):
            try:
                value = json.loads(raw)
            except (UnicodeDecodeError, ValueError, RecursionError):
                yield InputRow(line, None, "not valid JSON")
                continue
            columns = value if isinstance(value, dict) else {file.column: value}
            text = value.get(file.column) if isinstance(value, dict) else value
            yield InputRow(line, text, "", columns) if isinstance(text, str) else InputRow(line, None, fault, columns)


def _csv_rows(file: InputFile) -> Iterator[InputRow]:
    csv.field_size_limit(min(sys.maxsize, MAX_FIELD_CHARS))
    with file.path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        reader = csv.reader(
            lines, strict=True
        )  # otherwise a quote that is not closed makes one text of all that follows
        line = 1
        try:
            names = next(reader, [])
            _check_columns(file, names)
            line = reader.line_num + 1
            for fields in reader:
                if fields:  # else the line is blank
                    columns = dict(zip_longest(names, fields[: len(names)]))
                    text = columns[file.column]
                    yield InputRow(line, text, "" if text is not None else "the record has too few fields", columns)
                line = reader.line_num + 1
        except csv.Error as error:
            what = "a quote is not closed" if str(error) == "unexpected end of data" else str(error)
            raise UnreadableFileError(
                f"{file.name}: the record that begins in line {line:,} is not CSV: {what}. In a field with quotes "
                'around it, a quote is written twice ("")'
            ) from None


def _parquet_rows(file: InputFile, names: Sequence[str]) -> Iterator[InputRow]:
    source = open_parquet(file)
    _check_columns(file, source.schema_arrow.names)
    line = 0
    for batch in source.iter_batches(PARQUET_ROWS, columns=list(dict.fromkeys([*_own_columns(file), *names]))):
        for columns in batch.to_pylist():
            line += 1
            text = columns[file.column]
            fault = "" if isinstance(text, str) else "not a text"
            yield InputRow(line, text if isinstance(text, str) else None, fault, columns)


def _own_columns(file: InputFile) -> dict[str, str]:
    """Returns the columns that a run reads, each with the option that chooses it."""
    columns = {file.column: "--column"}
    return columns if file.query_column is None else columns | {file.query_column: "--query-column"}


def _check_columns(file: InputFile, names: Sequence[str]) -> None:
    for column, option in _own_columns(file).items():
        if column not in names:
            columns = ", ".join(names) or "none"
            or_query = " or give one --query for all" if column == file.query_column else ""
            raise UnreadableFileError(
                f"{file.name} has no column {column!r}: choose one with {option}{or_query}. Its columns: {columns}"
            )
