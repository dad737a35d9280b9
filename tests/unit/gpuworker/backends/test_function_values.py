"""Inputs and outputs of functions: arrays come back as they were, and nothing on the wire is unpickled or believed."""

from __future__ import annotations

import base64
import io
import pickle
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gpuworker.backends.base import InputRefusedError
from gpuworker.backends.function_values import decode_input, encode_output, load_array
from shared.codec import encode_binary
from shared.messages import BYTES, NPY

FIELDS = st.just(np.dtype([("a", "<f4"), ("b", ">i2", (2,))]))
DTYPES = npst.scalar_dtypes() | npst.unicode_string_dtypes() | npst.byte_string_dtypes() | FIELDS
ARRAYS = npst.arrays(DTYPES, npst.array_shapes(min_dims=0, min_side=0, max_side=4))


class Bomb:
    """Raises an error when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (eval, ("1/0",))


def npy(array: Any, *, allow_pickle: bool = False) -> bytes:  # noqa: ANN401 - anything that numpy takes
    """Returns an array as a .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def header_of(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """Returns the header of a .npy file with this shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


@given(ARRAYS, st.booleans())
def test_an_array_comes_back_as_it_was(array: Any, fortran: bool) -> None:  # noqa: ANN401
    """Dtype, shape, order and every byte are those of numpy.save, and the class may write to it."""
    array = np.asfortranarray(array) if fortran else array
    loaded = decode_input(encode_binary(NPY, npy(array)))
    expected = np.load(io.BytesIO(npy(array)), allow_pickle=False)
    assert (loaded.dtype, loaded.shape) == (expected.dtype, expected.shape)
    assert loaded.tobytes() == expected.tobytes()
    assert loaded.flags.writeable
    assert loaded.flags.f_contiguous == expected.flags.f_contiguous


@given(st.binary(max_size=300) | st.binary(max_size=100).map(lambda data: b"\x93NUMPY\x01\x00" + data))
def test_other_bytes_are_refused(data: bytes) -> None:
    """The client gets a reason, never an error of numpy."""
    with pytest.raises(InputRefusedError):
        load_array(data)


def test_python_objects_are_never_loaded() -> None:
    """An array of objects is refused, and its pickle is not read."""
    array = np.array([Bomb()], dtype=object)
    data = npy(array, allow_pickle=True)
    with pytest.raises(ZeroDivisionError):
        np.load(io.BytesIO(data), allow_pickle=True)
    with pytest.raises(InputRefusedError, match="Python objects"):
        load_array(data)
    with pytest.raises(InputRefusedError):
        load_array(pickle.dumps(Bomb()))


@pytest.mark.parametrize("shape", [(10**12,), (2**40, 2**40), (5,), (3,), (-4,), (-2, -2), ()])
def test_a_shape_that_the_bytes_do_not_have_is_refused(shape: tuple[int, ...]) -> None:
    """Nothing is reserved for an array that a header only claims."""
    with pytest.raises(InputRefusedError):
        load_array(header_of(shape) + bytes(4 * 4))


@given(st.binary(max_size=300))
def test_bytes_are_bytes(data: bytes) -> None:
    """Bytes arrive unchanged, also those of a .npy file or of JSON; bytes as an output are base64, at any depth."""
    for each in (data, b"\x93NUMPY" + data, b"[1]"):
        assert decode_input(encode_binary(BYTES, each)) == each
    as_object = {"base64": base64.b64encode(data).decode()}
    assert orjson.loads(encode_output(data)) == as_object
    assert orjson.loads(encode_output([{"a": bytearray(data)}, memoryview(data)])) == [{"a": as_object}, as_object]


def test_text_is_json() -> None:
    """An input that is no bytes is parsed; an object that JSON cannot hold is an error."""
    assert decode_input('{"a": [1, null]}') == {"a": [1, None]}
    with pytest.raises(TypeError):
        encode_output(object())


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((10**12,), "|S0"),
        ((10**12,), "<U0"),
        ((0, 10**30), "<f4"),
        ((1,) * 70, "|u1"),
        ((True,), "|u1"),
    ],
)
def test_headers_that_lie_about_memory_are_refused(shape: tuple[int, ...], dtype: str) -> None:
    """Elements without bytes would pass any check of lengths; numpy refuses the others with errors of other classes."""
    with pytest.raises(InputRefusedError):
        load_array(header_of(shape, dtype) + b"x" * (dtype == "|u1"))
