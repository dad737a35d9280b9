"""Encodes and decodes bodies and replies: msgpack with limits, vectors as raw little-endian float32.

Nothing is pickled. Values that are not vectors are JSON, which goes to the client unparsed.

Data from Redis is untrusted: every decoder checks types and sizes. It raises CodecError.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from msgspec import UNSET, Meta, MsgspecError, Raw, Struct, UnsetType
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import asdict

from shared.messages import (
    BINARY_KINDS,
    DEFAULT_OPTIONS,
    PREDICT,
    VERSION,
    Body,
    Failure,
    FailureOrigin,
    Input,
    Options,
    Reply,
    Timing,
    TooLong,
    Values,
    Vectors,
)

MAX_BODY_BYTES = 32 * 2**20
MAX_INPUT_BYTES = 32_000_000
"""Maximum of the setting for the size of one input: with the rest of its body it is below MAX_BODY_BYTES."""

MAX_REPLY_BYTES = 256 * 2**20
MAX_INPUTS = 1_024
MAX_DIM = 65_536

MAX_PROMPT_NAME = 256
MAX_INSTRUCTION = 4_096
MAX_CUT_TOKENS = 2**31
"""Of the options that cut inputs to fewer tokens than the model reads."""

PREDICT_BINARY = "predict_binary"
"""The op, in the body of an entry, of PREDICT with a binary input: a worker that cannot read it hands it back."""

_BINARY_HEAD_BYTES = 2

T = TypeVar("T")

_ORIGIN_NAME = re.compile(r"[\w.:-]{1,128}")
"""The names of workers and of classes."""


class CodecError(ValueError):
    """The bytes do not have the format of this version of the contract."""


_Index = Annotated[int, Meta(ge=0, le=2**31)]
_Milliseconds = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""Any finite number."""

_CutTokens = Annotated[int, Meta(ge=1, le=MAX_CUT_TOKENS)]
_Numbers = Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(max_length=MAX_INPUTS)]


class _Options(Struct, forbid_unknown_fields=True):
    prompt_name: Annotated[str, Meta(max_length=MAX_PROMPT_NAME)] | None = None
    normalize: bool | None = None
    dimensions: Annotated[int, Meta(ge=1, le=MAX_DIM)] | None = None
    truncate: Literal["right", "left", "no"] = "right"
    special_tokens: bool = True
    instruction: Annotated[str, Meta(max_length=MAX_INSTRUCTION)] | None = None
    max_tokens: _CutTokens | None = None
    max_query_tokens: _CutTokens | None = None
    max_document_tokens: _CutTokens | None = None


_DEFAULT_OPTIONS = _Options()


_NUM_INPUTS = Meta(min_length=1, max_length=MAX_INPUTS)


class _Body(Struct, kw_only=True):
    op: str
    options: _Options
    query: str | None = None
    parts: Annotated[tuple[Literal["dense", "sparse", "multi_vector"], ...], Meta(max_length=3)] = ()


class _TextBody(_Body, kw_only=True):
    inputs: Annotated[tuple[str, ...], _NUM_INPUTS]


class _MixedBody(_Body, kw_only=True):
    """Texts and bytes. They are decoded one by one: what is neither could take a multiple of its size in memory."""

    inputs: Annotated[tuple[Raw, ...], _NUM_INPUTS]


class _Reply(Struct, omit_defaults=True):
    """The fields of every reply. An empty one is absent; those of a later version are skipped."""

    v: Annotated[int, Meta(ge=VERSION, le=VERSION)]
    id: str
    pos: _Index
    n: Annotated[int, Meta(ge=1, le=MAX_INPUTS)]


class _Result(_Reply):
    queue_ms: _Milliseconds
    inference_ms: _Milliseconds
    batch: _Index


class _Vectors(_Result):
    dim: Annotated[int, Meta(ge=1, le=MAX_DIM)]
    data: bytes
    tokenize_ms: _Milliseconds = 0.0
    tokens: _Numbers = ()
    revision: str = ""
    counts: _Numbers = ()
    truncated: _Numbers = ()


class _Values(_Result):
    values: Annotated[tuple[bytes, ...], Meta(max_length=MAX_INPUTS)]
    tokenize_ms: _Milliseconds = 0.0
    tokens: _Numbers = ()
    revision: str = ""
    truncated: _Numbers = ()


_encode = Encoder().encode
_NO_NAME = Raw(_encode(""))


class _Failure(_Reply):
    """Of its origin, any value is accepted, and what is no name is left out: the answer does not depend on it."""

    code: str
    message: str
    input: _Index | UnsetType = UNSET
    worker: Raw = _NO_NAME
    exception: Raw = _NO_NAME
    is_dead: bool = False
    unrun: bool = False
    too_long: tuple[_Index, _Index] | UnsetType = UNSET
    is_loggable: bool = False


_BODIES: tuple[Decoder[_TextBody | _MixedBody], ...] = (Decoder(_TextBody), Decoder(_MixedBody))
_TEXT = Decoder(str)
_INPUTS: tuple[Decoder[Any], ...] = (_TEXT, Decoder(bytes))
_REPLIES: tuple[Decoder[Any], ...] = (Decoder(_Vectors), Decoder(_Values), Decoder(_Failure))  # the usual one first


def _decode(data: bytes, max_bytes: int, decoders: Sequence[Decoder[T]]) -> T:
    """Returns what the first decoder that can read the data returns."""
    if len(data) > max_bytes:
        raise CodecError(f"{len(data)} bytes are over the limit of {max_bytes}")
    for decoder in decoders:
        try:
            return decoder.decode(data)
        except (MsgspecError, ValueError, RecursionError):  # their texts may quote the data
            continue
    raise CodecError("not msgpack, or a field is missing, of a wrong type, or out of bounds")


def encode_body(body: Body) -> bytes:
    """Returns the `body` field of an entry.

    Raises:
        UnicodeEncodeError: an input holds a lone surrogate, which UTF-8 cannot encode.
    """
    options = {} if body.options == DEFAULT_OPTIONS else _non_default_options(body.options)
    is_binary = body.op == PREDICT and any(isinstance(each, bytes) for each in body.inputs)
    op = PREDICT_BINARY if is_binary else body.op
    fields = {"op": op, "inputs": body.inputs, "options": options}
    # Not among the options: a worker that knows neither these nor the op hands the entry back for the op.
    query, parts = body.options.query, body.options.parts
    if query is not None:
        fields["query"] = query
    if parts:
        fields["parts"] = parts
    return _encode(fields)


def encode_ids(ids: Sequence[int]) -> bytes:
    """Returns token ids as an input. Raises struct.error: an id is below 0 or longer than 32 bits."""
    return struct.pack(f"<{len(ids)}I", *ids)


def decode_ids(data: bytes) -> list[int]:
    """Returns the token ids of an input."""
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def encode_binary(kind: str, data: bytes) -> bytes:
    """Returns a binary input: the index of its kind, the number of bytes of padding, the padding, and the data.

    With the padding its length is a multiple of 4. An older worker, which takes it for token ids, so gets as far as the
    op of the entry, and hands the entry back.
    """
    padding = -(_BINARY_HEAD_BYTES + len(data)) % 4
    return b"".join((bytes((BINARY_KINDS.index(kind), padding)), bytes(padding), data))


def decode_binary(value: bytes) -> tuple[str, bytes]:
    """Returns the kind and the data of a binary input."""
    return BINARY_KINDS[value[0]], value[_BINARY_HEAD_BYTES + value[1] :]


def input_size(value: Input) -> int:
    """Returns the bytes of an input of PREDICT: of its JSON, or of its data."""
    if isinstance(value, bytes):
        return len(value) - _BINARY_HEAD_BYTES - value[1]
    return len(value) if value.isascii() else len(value.encode())


def _non_default_options(options: Options) -> dict[str, object]:
    """Returns the options that are not left to the model, which differ from the default."""
    return {
        name: value
        for name, value in options._replace(query=None, parts=())._asdict().items()
        if value != Options._field_defaults[name]
    }


def decode_body(data: bytes) -> Body:
    """Decodes the `body` field of an entry.

    Raises:
        CodecError: the bytes are not a body.
    """
    body = _decode(data, MAX_BODY_BYTES, _BODIES)
    op = body.op
    inputs: tuple[Input, ...] = (
        body.inputs if isinstance(body, _TextBody) else tuple([_decode_input(each, op) for each in body.inputs])
    )
    is_default = body.options == _DEFAULT_OPTIONS and body.query is None and not body.parts
    options = DEFAULT_OPTIONS if is_default else Options(**asdict(body.options), query=body.query, parts=body.parts)
    return Body(PREDICT if op == PREDICT_BINARY else op, inputs, options)


def _decode_input(data: Raw, op: str) -> Input:
    value: Input = _decode(data, MAX_BODY_BYTES, _INPUTS)
    if isinstance(value, str) or (op != PREDICT and (_is_binary if op == PREDICT_BINARY else _is_token_ids)(value)):
        return value
    raise CodecError("an input is no text, no token ids, and no binary input of predict")


def _is_token_ids(value: bytes) -> bool:
    return len(value) > 0 and len(value) % 4 == 0


def _is_binary(value: bytes) -> bool:
    if len(value) < _BINARY_HEAD_BYTES:
        return False
    kind, padding = value[0], value[1]
    return kind < len(BINARY_KINDS) and padding < min(4, len(value) - 1)


def encode_reply(reply: Reply) -> bytes:
    """Returns one element of a request's reply list."""
    if isinstance(reply, Failure):
        return _encode(
            _Failure(
                VERSION,
                reply.request_id,
                reply.position,
                reply.n,
                reply.code,
                reply.message,
                UNSET if reply.input_index is None else reply.input_index,
                _encode_name(reply.origin.worker),
                _encode_name(reply.origin.exception),
                reply.origin.is_dead,
                reply.origin.unrun,
                UNSET if reply.too_long is None else reply.too_long,
                reply.origin.is_loggable,
            )
        )
    timing = reply.timing
    queue_ms, inference_ms, tokenize_ms = float(timing.queue_ms), float(timing.inference_ms), float(timing.tokenize_ms)
    head = (VERSION, reply.request_id, reply.position, reply.n, queue_ms, inference_ms, timing.batch_size)
    if isinstance(reply, Values):
        return _encode(_Values(*head, reply.values, tokenize_ms, reply.tokens, reply.revision, reply.truncated))
    return _encode(
        _Vectors(*head, reply.dim, reply.data, tokenize_ms, reply.tokens, reply.revision, reply.counts, reply.truncated)
    )


def decode_reply(data: bytes) -> Reply:
    """Decodes one element of a reply list.

    Raises:
        CodecError: the bytes are not a reply of this version, or its vectors do not have the length it states.
    """
    reply: _Vectors | _Values | _Failure = _decode(data, MAX_REPLY_BYTES, _REPLIES)
    request_id, position, n = reply.id, reply.pos, reply.n
    if isinstance(reply, _Failure):
        index = None if reply.input is UNSET else reply.input
        if index is not None and index >= n:
            raise CodecError(f"field 'input' is no index below {n}")
        worker, exception = _decode_name(reply.worker), _decode_name(reply.exception)
        origin = FailureOrigin(worker, exception, reply.is_dead, reply.unrun, reply.is_loggable)
        too_long = None if reply.too_long is UNSET else TooLong(*reply.too_long)
        return Failure(request_id, position, n, reply.code, reply.message, index, origin, too_long)
    timing = Timing(reply.queue_ms, reply.inference_ms, reply.batch, reply.tokenize_ms)
    tokens, truncated = reply.tokens, reply.truncated
    if tokens and len(tokens) != n:
        raise CodecError(f"field 'tokens' is not a list of {n} numbers")
    if truncated and max(truncated) >= n:
        raise CodecError(f"field 'truncated' is not a list of indices below {n}")
    if isinstance(reply, _Values):
        if len(reply.values) != n:
            raise CodecError(f"field 'values' is not a list of {n} values")
        return Values(request_id, position, n, reply.values, timing, tokens, reply.revision, truncated)
    data, dim, counts = reply.data, reply.dim, reply.counts
    if counts and len(counts) != n:
        raise CodecError(f"field 'counts' is not a list of {n} numbers")
    number = sum(counts) if counts else n
    if len(data) != number * dim * 4:
        raise CodecError(f"{len(data)} bytes are not {number} vectors of {dim} float32")
    return Vectors(request_id, position, n, dim, data, timing, tokens, counts, reply.revision, truncated)


def _encode_name(name: str) -> Raw:
    return Raw(_encode(name)) if name else _NO_NAME


def _decode_name(data: Raw) -> str:
    """Returns the name of a worker or a class; "" for anything else, which could put any text into a log."""
    try:
        name = _TEXT.decode(data)
    except (MsgspecError, ValueError, RecursionError):
        return ""
    return name if _ORIGIN_NAME.fullmatch(name) else ""
