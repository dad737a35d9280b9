"""The parts of an embedding, as a worker sends them together: msgpack, with vectors as little-endian float32. Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from shared.codec import MAX_DIM, CodecError

NUMBER_BYTES = 4


class Parts(Struct, frozen=True, omit_defaults=True):
    """What a model returns of one text; None for a part that is not requested.

    Attributes:
        dense: one vector, as little-endian float32.
        sparse: the weights of tokens of the vocabulary, as JSON.
        multi_vector: the vectors of tokens, of `dim` numbers each, back to back, as little-endian float32.
        dim: of the vectors of tokens.
    """

    dense: bytes | None = None
    sparse: bytes | None = None
    multi_vector: bytes | None = None
    dim: Annotated[int, Meta(ge=1, le=MAX_DIM)] = 1


encode_parts = Encoder().encode
_DECODER = Decoder(Parts)


def decode_parts(data: bytes) -> Parts:
    """Returns the parts of a text. Raises CodecError: the bytes are none, or hold no whole vectors."""
    try:
        parts = _DECODER.decode(data)
    except (MsgspecError, ValueError, RecursionError):  # their texts may quote the data
        raise CodecError("not the parts of an embedding") from None
    if len(parts.dense or b"") % NUMBER_BYTES or len(parts.multi_vector or b"") % (NUMBER_BYTES * parts.dim):
        raise CodecError("the parts of an embedding hold no whole vectors")
    return parts
