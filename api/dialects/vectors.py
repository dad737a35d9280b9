"""Vectors as JSON and as .npy. Numbers are float32 in the shortest decimal form that reads back the same. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from shared.messages import Failure, Vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from api.dialects.request import InferenceResult
    from shared.messages import Reply

FLOAT32 = np.dtype("<f4")

Rows = Sequence["NDArray[np.float32] | None"]
"""A vector for each input, or None for one that failed."""


def dump_json(value: dict[str, Any] | list[Any] | NDArray[np.float32]) -> bytes:
    """Returns JSON; vectors may be arrays."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def rows_of(result: InferenceResult) -> Rows | NDArray[np.float32]:
    """Returns the vector of each input: an array of shape (inputs, dim) if no input failed."""
    parts = result.parts
    vectors = [part for part in parts if isinstance(part, Vectors)]
    if len(vectors) == len(parts):
        return np.frombuffer(b"".join([each.data for each in vectors]), dtype=FLOAT32).reshape(-1, vectors[0].dim)
    return [np.frombuffer(part.data, dtype=FLOAT32) if isinstance(part, Vectors) else None for part in parts]


def encode_failures(parts: Iterable[Reply]) -> list[dict[str, object]]:
    """Returns the inputs that failed: index, code and message of each."""
    failures = (each for each in parts if isinstance(each, Failure))
    return [{"index": each.position, "code": each.code, "message": each.message} for each in failures]


def npy_header(n: int, dim: int) -> bytes:
    """Returns the header of a .npy file of float32 with shape (n, dim)."""
    buffer = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (n, dim)}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()
