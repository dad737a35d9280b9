"""The field `return` of a body, and the parts of a text's embedding in an answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import orjson
from pydantic import Field

from api.dialects.long_text import IN_CHUNKS
from api.dialects.quantization import encode_rows
from api.dialects.vectors import rows_of
from shared.errors import InvalidRequestError
from shared.messages import DENSE, EMBED, EMBED_PARTS, EMBED_SPARSE, MULTI_VECTOR, SPARSE, Values
from shared.parts import Parts, decode_parts

if TYPE_CHECKING:
    from api.dialects.quantization import OutputType
    from api.dialects.request import InferenceRequest, InferenceResult

Part: TypeAlias = Literal["dense", "sparse", "multi_vector"]
RETURN: Any = Field(
    default=None,
    alias="return",
    min_length=1,
    fail_fast=True,
    description="The parts of each text's embedding, in an object for each text: dense, a vector; sparse, weights of "
    "tokens of the vocabulary; multi_vector, a vector for each token, for late interaction.",
)


def with_parts(request: InferenceRequest, parts: Sequence[Part]) -> InferenceRequest:
    """Returns a request for these parts of each text. A single one is what another route returns, if there is one.

    Raises:
        InvalidRequestError: texts are to run in chunks.
    """
    if request.long_text in IN_CHUNKS:
        message = "long_text: the parts of an embedding are those of a whole text: leave it out, or return."
        raise InvalidRequestError(message, param="long_text")
    named = tuple(dict.fromkeys(parts))
    if named == (DENSE,):
        return request._replace(parts=named)
    if named == (SPARSE,):
        return request._replace(parts=named, op=EMBED_SPARSE)
    return request._replace(parts=named, op=EMBED_PARTS, options=request.options._replace(parts=named))


def parts_of_ops(ops: Sequence[str] | frozenset[str]) -> list[str]:
    """Returns the parts that a model with these operations may return."""
    multi_vector = (MULTI_VECTOR,) if EMBED_PARTS in ops else ()
    return [*((DENSE,) if EMBED in ops else ()), *((SPARSE,) if EMBED_SPARSE in ops else ()), *multi_vector]


def rows_of_parts(request: InferenceRequest, result: InferenceResult) -> list[dict[str, Any] | None]:
    """Returns for each text its parts by name, or None if it failed.

    Raises:
        InvalidRequestError: see quantization.encode_rows.
        CodecError: a worker has sent something else.
    """
    output_type = request.output_types[0]
    if request.op == EMBED:
        dense = encode_rows(rows_of(result), output_type, int8_ranges=request.int8_ranges)
        return [None if row is None else {DENSE: row} for row in dense]
    rows: list[dict[str, Any] | None] = []
    for reply in result.parts:
        if not isinstance(reply, Values):
            rows.append(None)
        elif request.op == EMBED_SPARSE:
            rows += [{SPARSE: orjson.Fragment(value)} for value in reply.values]
        else:
            rows += [_row_of(decode_parts(value), output_type, request.int8_ranges) for value in reply.values]
    return rows


def _row_of(parts: Parts, output_type: OutputType, int8_ranges: bytes) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if parts.dense is not None:
        dense = np.frombuffer(parts.dense, dtype="<f4")[None]
        [row[DENSE]] = encode_rows(dense, output_type, int8_ranges=int8_ranges)
    if parts.sparse is not None:
        row[SPARSE] = orjson.Fragment(parts.sparse)
    if parts.multi_vector is not None:
        vectors = np.frombuffer(parts.multi_vector, dtype="<f4").reshape(-1, parts.dim)
        row[MULTI_VECTOR] = encode_rows(vectors, output_type)
    return row
