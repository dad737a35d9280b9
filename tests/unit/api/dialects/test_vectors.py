"""Vectors as JSON: the numbers of the model, bit for bit."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.dialects.headers import timing_headers
from api.dialects.native import Native
from api.dialects.request import InferenceRequest, InferenceResult
from shared.messages import Vectors

float32 = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True)


def result_of(*rows: list[float], per_entry: int = 1) -> InferenceResult:
    """Returns a result with these vectors."""
    data = [struct.pack(f"<{len(row)}f", *row) for row in rows]
    parts = [data[start : start + per_entry] for start in range(0, len(data), per_entry)]
    entries = [Vectors("r", at * per_entry, len(part), len(rows[0]), b"".join(part)) for at, part in enumerate(parts)]
    return InferenceResult(entries, 1.25, 3.0, 64)


def body(result: InferenceResult, *, single: bool) -> bytes:
    """Returns the body of an answer to POST /embed."""
    return Native().encode_result(InferenceRequest((), 1_000, single=single), result)


def bits(values: list[float]) -> bytes:
    """Returns the numbers as float32."""
    return np.array(values, dtype="<f4").tobytes()


@given(st.lists(float32, min_size=1, max_size=40))
@example([-0.0, 0.0, 1e-45, -1e-45, 1.1754943508222875e-38, 3.4028234663852886e38, 0.1, 1 / 3, 16777217.0])
def test_every_number_reads_back_bit_for_bit(row: list[float]) -> None:
    """Every float32 is read back unchanged, also subnormals and negative zero, as float64 or float32."""
    answer = json.loads(body(result_of(row), single=True))["embedding"]
    assert bits(answer) == struct.pack(f"<{len(row)}f", *row)


@pytest.mark.parametrize(("value", "form"), [(0.1, b"0.1"), (1 / 3, b"0.33333334"), (-0.0, b"-0.0"), (1.0, b"1.0")])
def test_numbers_are_as_short_as_float32_allows(value: float, form: bytes) -> None:
    """A number has the shortest decimal form of its float32, not the digits of its float64."""
    assert body(result_of([value]), single=True) == b'{"embedding":[' + form + b"]}"


@pytest.mark.parametrize("per_entry", [1, 2, 3])
def test_entries_are_joined_in_order(per_entry: int) -> None:
    """Vectors are in the order of the texts, whatever the split into entries."""
    rows = [[float(i), float(-i)] for i in range(3)]
    answer = json.loads(body(result_of(*rows, per_entry=per_entry), single=False))
    assert answer == {"embeddings": rows}


def test_timing_headers() -> None:
    """The headers have milliseconds with one decimal digit, and the size of the batch."""
    expected = {"x-queue-time": "1.2", "x-inference-time": "3.0", "x-batch-size": "64"}
    assert timing_headers(result_of([1.0])) == expected
