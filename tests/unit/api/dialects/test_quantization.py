"""Vectors in other number formats: what clients decode is close to the vectors, and bits are those of the library."""

from __future__ import annotations

import math
from base64 import b64decode
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from sentence_transformers.util import quantize_embeddings

from api.dialects.quantization import encode_rows, int8_range, options_for
from shared.errors import InvalidRequestError
from shared.messages import DEFAULT_OPTIONS, Options

DIM = 16
Vectors = NDArray[np.float32]
vectors = arrays(np.float32, (3, DIM), elements=st.floats(-1, 1, width=32)).map(
    lambda rows: np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6), dtype=np.float32)
)


@given(vectors)
@pytest.mark.parametrize("output_type", ["binary", "ubinary"])
def test_bits_are_those_of_sentence_transformers(output_type: Literal["binary", "ubinary"], rows: Vectors) -> None:
    """In the same order, and with the same sign."""
    expected = np.asarray(quantize_embeddings(rows, output_type))
    found = np.asarray(encode_rows(rows, output_type))
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


@given(vectors)
def test_whole_numbers_are_the_vector_in_steps_of_the_range(rows: Vectors) -> None:
    """Each is within half a step of its number, or at the end of the range; uint8 is int8 plus 128."""
    limit = int8_range(DIM)
    found = np.asarray(encode_rows(rows, "int8"))
    assert found.dtype == np.int8
    assert np.abs(found * (limit / 127) - np.clip(rows, -limit, limit)).max() <= limit / 254 + 1e-6
    assert np.array_equal(np.asarray(encode_rows(rows, "uint8")), found.astype(np.int16) + 128)


def test_the_range_is_four_root_mean_squares_of_a_vector_of_length_1() -> None:
    """A vector of equal numbers has a quarter of it in each."""
    row = np.full((1, 400), 0.05, dtype=np.float32)
    assert np.linalg.norm(row) == pytest.approx(1)
    assert int8_range(400) == pytest.approx(4 * 0.05)
    assert np.asarray(encode_rows(row, "int8")).tolist() == [[32] * 400]


@given(vectors, arrays(np.int8, (5, DIM)).map(lambda rows: rows.astype(np.float32) / 128))
@pytest.mark.parametrize("output_type", ["int8", "uint8"])
def test_ranges_are_those_of_sentence_transformers(
    output_type: Literal["int8", "uint8"], rows: Vectors, calibration: Vectors
) -> None:
    """Also of numbers outside of the range, and of a dimension that is always the same."""
    ranges = np.vstack([calibration.min(axis=0), calibration.max(axis=0)])
    expected = np.asarray(quantize_embeddings(rows, output_type, ranges=ranges))
    found = np.asarray(encode_rows(rows, output_type, int8_ranges=ranges.tobytes()))
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    with pytest.raises(InvalidRequestError, match="ranges for all 16"):
        encode_rows(rows[:, :8], output_type, int8_ranges=ranges.tobytes())


@given(vectors)
def test_float16_and_base64(rows: Vectors) -> None:
    """float16 rounds to eleven bits; base64 has the little-endian numbers of the type, by default float32."""
    assert np.array_equal(np.asarray(encode_rows(rows, "float16")), rows.astype(np.float16))
    for output_type, dtype, base64 in (("base64", "<f4", False), ("float", "<f4", True), ("float16", "<f2", True)):
        encoded = encode_rows(rows, output_type, base64=base64)  # type: ignore[arg-type]
        assert all(isinstance(each, str) for each in encoded)
        assert np.array_equal([np.frombuffer(b64decode(each), dtype) for each in encoded], rows.astype(dtype))


@pytest.mark.parametrize("output_type", ["float", "float16", "int8", "uint8", "binary", "ubinary", "base64"])
def test_an_input_that_failed_stays_null(output_type: Any) -> None:  # noqa: ANN401 - any of its values
    """And the others have their vectors."""
    row = np.full(DIM, 1 / math.sqrt(DIM), dtype=np.float32)
    encoded = encode_rows([row, None], output_type)
    assert encoded[1] is None
    assert encoded[0] is not None


def test_bits_need_whole_bytes() -> None:
    """A client cannot know how many bits of the last byte count."""
    with pytest.raises(InvalidRequestError, match="12 bits make no whole bytes"):
        encode_rows(np.zeros((1, 12), dtype=np.float32), "binary")
    with pytest.raises(InvalidRequestError, match="12 bits make no whole bytes"):
        options_for(("float", "ubinary"), Options(dimensions=12), "output_dtype")


def test_whole_numbers_need_vectors_of_length_1() -> None:
    """The model's default becomes normalized vectors; vectors that must not be are refused. Bits do without."""
    assert options_for(("int8",), DEFAULT_OPTIONS, "output_dtype").normalize is True
    assert options_for(("float", "binary"), DEFAULT_OPTIONS, "output_dtype") is DEFAULT_OPTIONS
    with pytest.raises(InvalidRequestError, match="output_dtype: int8 and uint8 are for vectors of length 1"):
        options_for(("float", "uint8"), Options(normalize=False), "output_dtype")
