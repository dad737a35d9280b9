"""Writers of output files: one row per input, slice by slice; an input without a vector has an empty row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Slice = tuple[Vectors, dict[int, str]]
"""Vectors of a slice, and the fault of each row without a vector, by index."""


class UnwritableFileError(Exception):
    """The output cannot be written in its format; the message says why."""


Writer = Callable[[Path, Iterable[Slice], int, int], None]
"""Writes slices to a path; the integers are the numbers of rows and of dimensions."""


def writer_for(path: Path) -> Writer:
    """Returns the writer for a suffix: .npy, .jsonl, .ndjson or .parquet. Raises UnwritableFileError."""
    writers = {".npy": _write_npy, ".jsonl": _write_json, ".ndjson": _write_json, ".parquet": _write_parquet}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise UnwritableFileError(f"{path}: the name must end with one of {', '.join(writers)}")
    if writer is _write_parquet:
        _import_pyarrow()
    return writer


def _write_npy(path: Path, slices: Iterable[Slice], rows: int, dim: int) -> None:
    """Writes float32 of shape (rows, dim); a row without a vector is NaN."""
    file = np.lib.format.open_memmap(path, "w+", np.dtype("<f4"), (rows, dim)) if rows and dim else None
    if file is None:
        np.save(path.open("wb"), np.full((rows, dim), np.nan, dtype="<f4"))
        return
    start = 0
    for vectors, _ in slices:
        file[start : start + len(vectors)] = vectors if vectors.shape[1] else np.nan
        start += len(vectors)
    file.flush()


def _write_json(path: Path, slices: Iterable[Slice], _rows: int, _dim: int) -> None:
    """Writes {"embedding": [...]} on each line; {"embedding": null, "error": "..."} without a vector."""
    with path.open("wb") as file:
        for vectors, faults in slices:
            for index, vector in enumerate(vectors):
                record: dict[str, object] = {"embedding": vector}
                if index in faults:
                    record = {"embedding": None, "error": faults[index]}
                file.write(orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))


def _write_parquet(path: Path, slices: Iterable[Slice], _rows: int, dim: int) -> None:
    """Writes a column `embedding` of lists of float32, null without a vector, and a column `error`."""
    pa, pq = _import_pyarrow()
    schema = pa.schema([("embedding", pa.list_(pa.float32(), max(1, dim))), ("error", pa.string())])
    with pq.ParquetWriter(path, schema) as file:
        for vectors, faults in slices:
            values = vectors if vectors.shape[1] else np.full((len(vectors), max(1, dim)), np.nan, dtype="<f4")
            missing = np.array([index in faults for index in range(len(values))], dtype=bool)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), max(1, dim), mask=pa.array(missing))
            errors = pa.array([faults.get(index) for index in range(len(values))], pa.string())
            file.write_table(pa.Table.from_arrays([lists, errors], schema=schema))


def _import_pyarrow() -> tuple[Any, Any]:
    """Returns the modules pyarrow and pyarrow.parquet. Raises UnwritableFileError if they are not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UnwritableFileError(
            "writing .parquet needs pyarrow: pip install -e '.[parquet]' in the checkout"
        ) from None
    return pa, pq
