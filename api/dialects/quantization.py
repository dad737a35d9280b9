"""Vectors in other number formats than float32: half precision, whole numbers, and bits. Pure.

int8 and uint8 have one range for all dimensions and models: a vector of length 1 and `dim` dimensions has numbers from
-r to r with r = 4 / sqrt(dim), four times their root mean square; larger ones are clipped. int8 is round(127 x / r),
and uint8 is that plus 128, so that dot products of int8 keep the order of cosines. Workers may have ranges of their
own instead: the smallest and the largest number of each dimension, between which uint8 has 255 steps of equal size, as
`quantize_embeddings` of sentence-transformers has them, and int8 is that minus 128. binary and ubinary are
`sentence_transformers.util.quantize_embeddings`: a bit for each number, 1 if it is over 0, the first one the most
significant of its byte; binary is ubinary minus 128.
"""

from __future__ import annotations

import math
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from api.dialects.vectors import Rows
    from shared.messages import Options

OutputType: TypeAlias = Literal["float", "float16", "int8", "uint8", "binary", "ubinary", "base64"]
"""A number format; base64 is that of float32."""

FLOAT: OutputType = "float"
FLOATS: tuple[OutputType, ...] = (FLOAT,)
BASE64: OutputType = "base64"
WHOLE_NUMBERS = frozenset(("int8", "uint8"))
BITS = ("binary", "ubinary")
BITS_PER_BYTE = 8
RANGE = 4.0
"""Of whole numbers, in root mean squares of a vector's numbers: one in 16,000 of a normal distribution is outside."""

INT8_STEPS, INT8_OFFSET, UINT8_STEPS = 127, 128, 255
BYTES_PER_RANGE = 8
"""The smallest and the largest number of a dimension, as float32."""


def int8_range(dim: int) -> float:
    """Returns the largest absolute number that int8 and uint8 hold of a vector of length 1 with `dim` dimensions."""
    return RANGE / math.sqrt(dim)


def options_for(output_types: Sequence[OutputType], options: Options, param: str) -> Options:
    """Returns options with which vectors suit these types: whole numbers need vectors of length 1.

    Raises:
        InvalidRequestError: the client wants whole numbers of vectors of any length, or a part of a byte of bits.
    """
    if options.dimensions is not None and any(each in BITS for each in output_types):
        _check_whole_bytes(options.dimensions)
    if not any(each in WHOLE_NUMBERS for each in output_types):
        return options
    if options.normalize is False:
        message = f"{param}: int8 and uint8 are for vectors of length 1: leave normalize out."
        raise InvalidRequestError(message, param=param)
    return options._replace(normalize=True)


def check_dimensions(output_types: Sequence[OutputType], dimensions: int | None, int8_ranges: bytes) -> None:
    """Raises InvalidRequestError: vectors are to be cut, and the ranges of whole numbers are for whole vectors."""
    dim = len(int8_ranges) // BYTES_PER_RANGE
    if dimensions is not None and 0 < dim != dimensions and not WHOLE_NUMBERS.isdisjoint(output_types):
        message = f"dimensions: int8 and uint8 of this model have ranges for all {dim}: leave it out."
        raise InvalidRequestError(message, param="dimensions")


def encode_rows(
    rows: Rows | NDArray[np.float32], output_type: OutputType, *, base64: bool = False, int8_ranges: bytes = b""
) -> Sequence[Any] | NDArray[Any]:
    """Returns vectors in a number format, or as little-endian numbers in base64; None stays None.

    `int8_ranges` are those of the model, as float32 of shape (2, dimensions); if there are none, all have `int8_range`.

    Raises:
        InvalidRequestError: bits are requested, and the number of dimensions is not a multiple of eight; or vectors
            were cut, and ranges are for whole ones.
    """
    if output_type not in (FLOAT, BASE64):
        if isinstance(rows, np.ndarray):
            rows = _quantize(rows, output_type, int8_ranges)
        else:
            rows = [None if row is None else _quantize(row, output_type, int8_ranges) for row in rows]
    if base64 or output_type == BASE64:
        return [None if row is None else b64encode(row.tobytes()).decode() for row in rows]
    return rows


def _check_whole_bytes(dim: int) -> None:
    if dim % BITS_PER_BYTE:
        raise InvalidRequestError(f"{dim} bits make no whole bytes: set the dimensions to a multiple of 8.")


def _quantize(vectors: NDArray[np.float32], output_type: OutputType, int8_ranges: bytes) -> NDArray[Any]:
    if output_type == "float16":
        return vectors.astype("<f2")
    dim = vectors.shape[-1]
    if output_type in BITS:
        _check_whole_bytes(dim)
        bits = np.packbits(vectors > 0, axis=-1)
        return bits if output_type == "ubinary" else (bits ^ np.uint8(INT8_OFFSET)).view(np.int8)
    if int8_ranges:
        whole = _steps_of(vectors, int8_ranges)
        return whole if output_type == "uint8" else (whole ^ np.uint8(INT8_OFFSET)).view(np.int8)
    numbers = np.clip(np.rint(vectors * (INT8_STEPS / int8_range(dim))), -INT8_STEPS, INT8_STEPS).astype(np.int8)
    return numbers if output_type == "int8" else np.asarray(numbers.view(np.uint8) ^ np.uint8(INT8_OFFSET))


def _steps_of(vectors: NDArray[np.float32], int8_ranges: bytes) -> NDArray[np.uint8]:
    """Returns the step of each number from the smallest of its dimension, by the formula of `quantize_embeddings`."""
    check_dimensions(("uint8",), vectors.shape[-1], int8_ranges)
    smallest, largest = np.frombuffer(int8_ranges, dtype="<f4").reshape(2, -1)
    sizes = (largest - smallest) / UINT8_STEPS
    sizes = np.where(sizes == 0, np.float32(1), sizes)
    steps: NDArray[np.uint8] = np.clip(np.floor((vectors - smallest) / sizes), 0, UINT8_STEPS).astype(np.uint8)
    return steps
