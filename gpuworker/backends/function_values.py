"""The inputs and outputs of a user's function: JSON, bytes and arrays on the wire, values of Python in the class."""

from __future__ import annotations

import io
from binascii import b2a_base64
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from gpuworker.backends.base import InputRefusedError
from shared.codec import decode_binary
from shared.messages import NPY, Input

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ARRAYS = orjson.OPT_SERIALIZE_NUMPY


def decode_input(value: Input) -> Any:  # noqa: ANN401 - any JSON value, bytes, or an array
    """Returns an input as `preprocess` takes it.

    Raises:
        InputRefusedError: the input is not the array that it says it is.
    """
    if isinstance(value, str):
        return orjson.loads(value)
    kind, data = decode_binary(value)
    return load_array(data) if kind == NPY else data


def load_array(data: bytes) -> NDArray[Any]:
    """Returns a new array from the bytes of a .npy file.

    Not by numpy.load, which reserves the memory that the header asks for before it looks at the length of the data.

    Raises:
        InputRefusedError: the bytes are no such file, hold Python objects, or are too few or too many for the shape.
    """
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, is_fortran, dtype = read_header(stream)
    except Exception:  # noqa: BLE001 - numpy's parser of headers raises errors of many classes
        raise InputRefusedError("The input is no array in .npy format (version 1 or 2).") from None
    if not dtype.itemsize or dtype.subdtype is not None:  # without bytes, a shape of any size would pass
        raise InputRefusedError("The elements of the array have no size: send numbers, booleans or texts.")
    if dtype.hasobject:
        raise InputRefusedError("The array holds Python objects: send numbers, booleans or texts.")
    content = memoryview(data)[stream.tell() :]
    count = 1
    for side in shape:
        count *= side
    if any(side < 0 for side in shape) or count * dtype.itemsize != len(content):
        raise InputRefusedError("The array has another number of bytes than its shape needs.")
    try:
        flat = np.frombuffer(content, dtype, count) if len(content) else np.empty(0, dtype)
        return flat.reshape(shape, order="F" if is_fortran else "C").copy(order="K")
    except (ValueError, TypeError, OverflowError, MemoryError):  # too many or too large sides
        raise InputRefusedError("The array has a shape that numpy cannot hold.") from None


def encode_output(value: Any) -> bytes:  # noqa: ANN401 - see the class
    """Returns an output as JSON. Bytes, at any depth, are objects with the key `base64`.

    Raises:
        TypeError: JSON cannot hold it.
    """
    return orjson.dumps(value, _encode_other, _ARRAYS)


def _encode_other(value: object) -> object:
    """Returns a tensor, or any value with a `tolist` method, as lists; bytes as an object. Raises TypeError."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": b2a_base64(value, newline=False).decode()}
    tolist = getattr(value, "tolist", None)
    if not callable(tolist):
        raise TypeError(type(value).__name__)
    return tolist()
