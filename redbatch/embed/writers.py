"""Writers of output files: one row per input, slice by slice; an input without a vector has an empty row."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from redbatch.embed.columns import EMBEDDING, ERROR, ColumnsError, KeptColumns

Vectors = NDArray[np.float32]
Slice = tuple[Vectors, dict[int, str]]
"""Vectors of a slice, and the fault of each row without a vector, by index."""

NPY, PARQUET = ".npy", ".parquet"


class UnwritableFileError(Exception):
    """The output cannot be written in its format; the message says why."""


class Shape(NamedTuple):
    """The number of rows of an output, and of dimensions of its vectors."""

    rows: int
    dim: int


Writer = Callable[[Path, Iterable[Slice], KeptColumns, Shape], None]
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


def _write_npy(path: Path, slices: Iterable[Slice], _kept: KeptColumns, shape: Shape) -> None:
    """Writes float32 of a shape; a row without a vector is NaN."""
    file = np.lib.format.open_memmap(path, "w+", np.dtype("<f4"), (shape.rows, shape.dim))
    start = 0
    for vectors, _ in slices:
        file[start : start + len(vectors)] = vectors if vectors.shape[1] else np.nan
        start += len(vectors)
    file.flush()


def _write_json(path: Path, slices: Iterable[Slice], kept: KeptColumns, _shape: Shape) -> None:
    """Writes the kept columns and `embedding` on each line; without a vector, it is null, and `error` says why."""
    records = kept.records()
    with path.open("wb") as file:
        for vectors, faults in slices:
            for (index, vector), record in zip(enumerate(vectors), records, strict=False):
                record[EMBEDDING] = vector
                if index in faults:
                    record |= {EMBEDDING: None, ERROR: faults[index]}
                file.write(_dump(record))


def _dump(record: dict[str, object]) -> bytes:
    """Returns a record as a line of JSON; NaN becomes null. Raises ColumnsError: a value has no form in JSON."""
    try:
        return orjson.dumps(record, _plain, orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # a number over 64 bits or a lone surrogate, which JSON has
        return json.dumps(record, default=_plain).encode() + b"\n"


def _plain(value: object) -> object:
    """Returns a value that JSON lacks as one that it has. Raises ColumnsError."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta | decimal.Decimal):
        return str(value)
    raise ColumnsError(
        f"a column with values of type {type(value).__name__} cannot be in a .jsonl file: "
        "name the columns to keep with --keep, or write .parquet"
    )


def _write_parquet(path: Path, slices: Iterable[Slice], kept: KeptColumns, shape: Shape) -> None:
    """Writes the kept columns, `embedding` of lists of float32, null without a vector, and `error`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = kept.tables()
    own = [pa.field(EMBEDDING, pa.list_(pa.float32(), shape.dim)), pa.field(ERROR, pa.string())]
    schema = pa.schema([*columns.schema, *own])
    with pq.ParquetWriter(path, schema) as file:
        for vectors, faults in slices:
            values = vectors if vectors.shape[1] else np.full((len(vectors), shape.dim), np.nan, dtype="<f4")
            missing = np.array([index in faults for index in range(len(values))], dtype=bool)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), shape.dim, mask=pa.array(missing))
            errors = pa.array([faults.get(index) for index in range(len(values))], pa.string())
            arrays = [*columns.take(len(values)), lists, errors]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))
