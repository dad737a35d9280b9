"""Writes vectors to a file, slice by slice, a row for each input: empty for one that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Slice = tuple[Vectors, dict[int, str]]


class UnwritableFileError(Exception):
    """The output cannot be written as what it is; the message says why."""


Write = Callable[[Path, Iterable[Slice], int, int], None]
"""Writes slices to a path: so many rows, of so many numbers each."""


def writer_for(path: Path) -> Write:
    """Returns what writes a file, by what its name ends with: .npy, .jsonl or .parquet. Raises UnwritableFileError."""
    kinds = {".npy": _write_npy, ".jsonl": _write_json, ".ndjson": _write_json, ".parquet": _write_parquet}
    writer = kinds.get(path.suffix.lower())
    if writer is None:
        raise UnwritableFileError(f"{path}: its name has to end with one of {', '.join(kinds)}")
    if writer is _write_parquet:
        _pyarrow()
    return writer


def _write_npy(path: Path, slices: Iterable[Slice], rows: int, dim: int) -> None:
    """float32 of shape (rows, dim); NaN for a row without a vector."""
    file = np.lib.format.open_memmap(path, "w+", np.dtype("<f4"), (rows, dim)) if rows and dim else None
    if file is None:
        np.save(path.open("wb"), np.full((rows, dim), np.nan, dtype="<f4"))
        return
    at = 0
    for vectors, _ in slices:
        file[at : at + len(vectors)] = vectors if vectors.shape[1] else np.nan
        at += len(vectors)
    file.flush()


def _write_json(path: Path, slices: Iterable[Slice], _rows: int, _dim: int) -> None:
    """{"embedding": [...]} on each line; {"embedding": null, "error": "..."} without a vector."""
    with path.open("wb") as file:
        for vectors, faults in slices:
            for index, vector in enumerate(vectors):
                told: dict[str, object] = {"embedding": vector}
                if index in faults:
                    told = {"embedding": None, "error": faults[index]}
                file.write(orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))


def _write_parquet(path: Path, slices: Iterable[Slice], _rows: int, dim: int) -> None:
    """A column `embedding` of lists of float32; null without a vector, with `error` beside it."""
    pa, pq = _pyarrow()
    schema = pa.schema([("embedding", pa.list_(pa.float32(), max(1, dim))), ("error", pa.string())])
    with pq.ParquetWriter(path, schema) as file:
        for vectors, faults in slices:
            there = vectors if vectors.shape[1] else np.full((len(vectors), max(1, dim)), np.nan, dtype="<f4")
            missing = np.array([index in faults for index in range(len(there))], dtype=bool)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(there.reshape(-1)), max(1, dim), mask=pa.array(missing))
            errors = pa.array([faults.get(index) for index in range(len(there))], pa.string())
            file.write_table(pa.Table.from_arrays([lists, errors], schema=schema))


def _pyarrow() -> tuple[Any, Any]:
    """Returns the modules. Raises UnwritableFileError: they are not there."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UnwritableFileError("writing .parquet needs pyarrow: pip install pyarrow") from None
    return pa, pq
