"""Writers of output files: one row per input, slice by slice; an input without a result has an empty row."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from redbatch.embed.columns import ERROR, ColumnsError, KeptColumns
from redbatch.embed.output_columns import OutputColumns, Slice, Vectors

NPY, PARQUET = ".npy", ".parquet"


class UnwritableFileError(Exception):
    """The output cannot be written in its format; the message says why."""


class Layout(NamedTuple):
    """The number of rows of an output, that of dimensions of its vectors, and its columns beside those of the input."""

    rows: int
    dim: int
    columns: OutputColumns


Writer = Callable[[Path, Iterable[Slice], KeptColumns, Layout], None]
"""Writes slices, and the kept columns of their rows, to a path. Raises ColumnsError: a column cannot be written."""


def writer_for(path: Path) -> Writer:
    """Returns the writer for a suffix: .npy, .jsonl, .ndjson or .parquet. Raises UnwritableFileError."""
    writers = {NPY: _write_npy, ".jsonl": _write_json, ".ndjson": _write_json, PARQUET: _write_parquet}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise UnwritableFileError(f"{path}: the name must end with one of {', '.join(writers)}")
    if writer is _write_parquet:
        try:
            import pyarrow as pa  # noqa: F401 - only whether it is installed
        except ImportError:
            raise UnwritableFileError(
                "writing .parquet needs pyarrow: pip install -e '.[parquet]' in the checkout"
            ) from None
    return writer


def _write_npy(path: Path, slices: Iterable[Slice], _kept: KeptColumns, layout: Layout) -> None:
    """Writes float32 of shape (rows, dim); a row without a result is NaN."""
    file = np.lib.format.open_memmap(path, "w+", np.dtype("<f4"), (layout.rows, layout.dim))
    for start, vectors, _ in _filled(slices, layout):
        file[start : start + len(vectors)] = vectors
    file.flush()


def _filled(slices: Iterable[Slice], layout: Layout) -> Iterator[tuple[int, Vectors, dict[int, str]]]:
    """Yields the first row of each slice, its vectors, and its faults; of a slice without any vector, rows of NaN."""
    start = 0
    for vectors, faults in slices:
        has_any = vectors.shape[1]
        yield start, vectors if has_any else np.full((len(vectors), layout.dim), np.nan, dtype="<f4"), faults
        start += len(vectors)


def _write_json(path: Path, slices: Iterable[Slice], kept: KeptColumns, layout: Layout) -> None:
    """Writes a line for each row, with the kept columns; without a result, it has null, and `error` says why."""
    records, columns = kept.records(), layout.columns
    with path.open("wb") as file:
        for start, vectors, faults in _filled(slices, layout):
            for (index, values), record in zip(enumerate(columns.records(start, vectors)), records, strict=False):
                own = dict.fromkeys(columns.names) | {ERROR: faults[index]} if index in faults else values
                file.write(_dump(record | own))


def _dump(record: dict[str, object]) -> bytes:
    """Returns a record as a line of JSON; NaN becomes null. Raises ColumnsError: a value has no form in JSON."""
    try:
        return orjson.dumps(record, _plain, orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # a number over 64 bits or a lone surrogate, which JSON has
        return json.dumps(record, default=_plain).encode() + b"\n"


def _plain(value: object) -> object:
    """Returns a value that JSON lacks as one that it has. Raises ColumnsError."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta | decimal.Decimal):
        return str(value)
    raise ColumnsError(
        f"a column with values of type {type(value).__name__} cannot be in a .jsonl file: "
        "name the columns to keep with --keep, or write .parquet"
    )


def _write_parquet(path: Path, slices: Iterable[Slice], kept: KeptColumns, layout: Layout) -> None:
    """Writes the kept columns, those of the results, null without one, and `error`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = kept.tables()
    own = layout.columns
    schema = pa.schema([*columns.schema, *own.fields(layout.dim), pa.field(ERROR, pa.string())])
    with pq.ParquetWriter(path, schema) as file:
        for start, vectors, faults in _filled(slices, layout):
            missing = np.array([index in faults for index in range(len(vectors))], dtype=bool)
            errors = pa.array([faults.get(index) for index in range(len(vectors))], pa.string())
            arrays = [*columns.take(len(vectors)), *own.arrays(start, vectors, missing), errors]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))
