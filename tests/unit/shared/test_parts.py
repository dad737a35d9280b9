"""The parts of an embedding as bytes: decoding returns the encoded value, and anything else is a CodecError."""

from __future__ import annotations

from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.codec import CodecError
from shared.parts import Parts, decode_parts, encode_parts

NUMBERS = st.binary(max_size=10).map(lambda data: data * 24)


@given(st.builds(Parts, st.none() | NUMBERS, st.none() | st.binary(), st.none() | NUMBERS, st.integers(1, 3)))
def test_decoding_returns_the_encoded_value(parts: Parts) -> None:
    """A part that is None is not there."""
    assert decode_parts(encode_parts(parts)) == parts


@given(st.binary())
def test_any_other_bytes_are_an_error(data: bytes) -> None:
    """Nothing else is raised."""
    with suppress(CodecError):
        decode_parts(data)


@pytest.mark.parametrize(
    "fields",
    [
        {"dense": b"123"},
        {"dense": "1234"},
        {"multi_vector": b"1234", "dim": 2},
        {"multi_vector": b"1234", "dim": 0},
        {"multi_vector": b"", "dim": 65_537},
        {"sparse": 1},
    ],
)
def test_a_part_has_whole_vectors(fields: dict[str, object]) -> None:
    """Of float32, and of the size that is there."""
    with pytest.raises(CodecError):
        decode_parts(msgpack.packb(fields))
