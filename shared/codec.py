"""Encodes and decodes bodies, replies and entries: msgpack with limits, vectors as raw little-endian float32.

Nothing is pickled. Values that are not vectors are JSON, which goes to the client unparsed.

Data from Redis is untrusted: every decoder checks types and sizes. It raises CodecError; `parse_entry` returns
only the Ref of a malformed entry.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import Any, TypeVar

import msgpack
from pydantic import ConfigDict, TypeAdapter, ValidationError

from shared.messages import (
    BINARY_KINDS,
    DEFAULT_OPTIONS,
    PREDICT,
    VERSION,
    Body,
    Entry,
    Failure,
    FailureOrigin,
    Input,
    Options,
    Ref,
    Reply,
    Timing,
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

PREDICT_BINARY = "predict_binary"
"""The op, in the body of an entry, of PREDICT with a binary input: a worker that cannot read it hands it back."""

_BINARY_HEAD_BYTES = 2

T = TypeVar("T")
_OPTIONS = TypeAdapter(Options, config=ConfigDict(strict=True))


_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ORIGIN_NAME = re.compile(r"[\w.:-]{1,128}")
"""The names of workers and of classes."""

_LATEST_MS = 2**52
_MAX_TOKENS = 2**31


class CodecError(ValueError):
    """The bytes do not have the format of this version of the contract."""


def _unpack(data: bytes, max_bytes: int) -> dict[str, Any]:
    if len(data) > max_bytes:
        raise CodecError(f"{len(data)} bytes are over the limit of {max_bytes}")
    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_array_len=MAX_INPUTS,
            max_map_len=64,
            max_ext_len=0,
            max_str_len=max_bytes,
            max_bin_len=max_bytes,
        )
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise CodecError(f"not msgpack within the limits: {type(error).__name__}") from None
    if not isinstance(value, dict):
        raise CodecError("not a map")
    return value


def _field(value: dict[str, Any], name: str, kind: type[T]) -> T:
    found = value.get(name)
    if type(found) is not kind:  # a bool is an instance of int
        raise CodecError(f"field {name!r} is not {kind.__name__}")
    return found


def _integer(value: dict[str, Any], name: str, low: int, high: int) -> int:
    found = value.get(name)
    if type(found) is not int or not low <= found <= high:
        raise CodecError(f"field {name!r} is not an integer from {low} to {high}")
    return found


def _finite_float(value: dict[str, Any], name: str) -> float:
    found = value.get(name)
    if type(found) is not float or not math.isfinite(found):
        raise CodecError(f"field {name!r} is not a finite number")
    return found


def encode_body(body: Body) -> bytes:
    """Returns the `body` field of an entry.

    Raises:
        UnicodeEncodeError: an input holds a lone surrogate, which UTF-8 cannot encode.
    """
    options = {} if body.options == DEFAULT_OPTIONS else _non_default_options(body.options)
    is_binary = body.op == PREDICT and any(isinstance(each, bytes) for each in body.inputs)
    op = PREDICT_BINARY if is_binary else body.op
    packed: bytes = msgpack.packb({"op": op, "inputs": body.inputs, "options": options})
    return packed


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
    return {name: value for name, value in options._asdict().items() if value != Options._field_defaults[name]}


def decode_body(data: bytes) -> Body:
    """Decodes the `body` field of an entry.

    Raises:
        CodecError: the bytes are not a body.
    """
    value = _unpack(data, MAX_BODY_BYTES)
    inputs, op = _field(value, "inputs", list), _field(value, "op", str)
    is_valid = _is_binary if op == PREDICT_BINARY else _is_token_ids
    if not inputs or not all(isinstance(each, str) or is_valid(each) for each in inputs):
        raise CodecError("field 'inputs' is not a list of one or more texts, token ids, or binary inputs of predict")
    if op == PREDICT and not all(isinstance(each, str) for each in inputs):
        raise CodecError("an input of 'predict' is not text")
    op = PREDICT if op == PREDICT_BINARY else op
    return Body(op, tuple(inputs), decode_options(_field(value, "options", dict)))


def _is_token_ids(value: object) -> bool:
    return isinstance(value, bytes) and len(value) > 0 and len(value) % 4 == 0


def _is_binary(value: object) -> bool:
    if not isinstance(value, bytes) or len(value) < _BINARY_HEAD_BYTES:
        return False
    kind, padding = value[0], value[1]
    return kind < len(BINARY_KINDS) and padding < min(4, len(value) - 1)


def decode_options(fields: dict[str, Any]) -> Options:
    """Returns the options of a body.

    Raises:
        CodecError: an option is unknown, which must not be ignored silently, has the wrong type, or is out of bounds.
    """
    if not fields:
        return DEFAULT_OPTIONS
    try:
        options = _OPTIONS.validate_python(fields)
    except ValidationError:
        raise CodecError("field 'options' holds an unknown option, or a wrong value") from None
    dimensions = 1 if options.dimensions is None else options.dimensions
    if not 1 <= dimensions <= MAX_DIM or len(options.prompt_name or "") > MAX_PROMPT_NAME:
        raise CodecError("field 'options' holds a value that is out of bounds")
    return options


def encode_reply(reply: Reply) -> bytes:
    """Returns one element of a request's reply list."""
    head: dict[str, object] = {"v": VERSION, "id": reply.request_id, "pos": reply.position, "n": reply.n}
    if isinstance(reply, Failure):
        head |= {"code": reply.code, "message": reply.message}
        if reply.input_index is not None:
            head["input"] = reply.input_index
        head |= {name: value for name, value in reply.origin._asdict().items() if value}
    else:
        timing = reply.timing
        head |= {
            "queue_ms": float(timing.queue_ms),
            "inference_ms": float(timing.inference_ms),
            "batch": timing.batch_size,
            "tokenize_ms": float(timing.tokenize_ms),
        }
        if reply.tokens:
            head["tokens"] = reply.tokens
        if isinstance(reply, Values):
            head["values"] = reply.values
        else:
            head |= {"dim": reply.dim, "revision": reply.revision, "data": reply.data}
            if reply.counts:
                head["counts"] = reply.counts
            if reply.truncated:
                head["truncated"] = reply.truncated
    packed: bytes = msgpack.packb(head)
    return packed


def decode_reply(data: bytes) -> Reply:
    """Decodes one element of a reply list.

    Raises:
        CodecError: the bytes are not a reply of this version, or its vectors do not have the length it states.
    """
    value = _unpack(data, MAX_REPLY_BYTES)
    if _field(value, "v", int) != VERSION:
        raise CodecError("not a reply of this version")
    request_id = _field(value, "id", str)
    position = _integer(value, "pos", 0, 2**31)
    n = _integer(value, "n", 1, MAX_INPUTS)
    if "code" in value:
        index = _integer(value, "input", 0, n - 1) if "input" in value else None
        code, message = _field(value, "code", str), _field(value, "message", str)
        return Failure(request_id, position, n, code, message, index, _origin(value))
    batch = _integer(value, "batch", 0, 2**31)
    tokenize_ms = _finite_float(value, "tokenize_ms") if "tokenize_ms" in value else 0.0
    timing = Timing(_finite_float(value, "queue_ms"), _finite_float(value, "inference_ms"), batch, tokenize_ms)
    tokens = _integers(value, "tokens", n) if "tokens" in value else ()
    if "values" in value:
        return Values(request_id, position, n, _values(value, n), timing, tokens)
    dim = _integer(value, "dim", 1, MAX_DIM)
    vectors = _field(value, "data", bytes)
    revision = _field(value, "revision", str) if "revision" in value else ""
    counts = _integers(value, "counts", n) if "counts" in value else ()
    number = sum(counts) if counts else n
    if len(vectors) != number * dim * 4:
        raise CodecError(f"{len(vectors)} bytes are not {number} vectors of {dim} float32")
    truncated = _indices(value, "truncated", n) if "truncated" in value else ()
    return Vectors(request_id, position, n, dim, vectors, timing, tokens, counts, revision, truncated)


def _origin(value: dict[str, Any]) -> FailureOrigin:
    """Returns where a failure comes from. What is no name is left out: it could put any text into a log."""
    worker, exception = (
        found if type(found := value.get(name)) is str and _ORIGIN_NAME.fullmatch(found) else ""
        for name in ("worker", "exception")
    )
    return FailureOrigin(worker, exception, value.get("is_dead") is True)


def _values(value: dict[str, Any], n: int) -> tuple[bytes, ...]:
    values = _field(value, "values", list)
    if len(values) != n or not all(isinstance(each, bytes) for each in values):
        raise CodecError(f"field 'values' is not a list of {n} values")
    return tuple(values)


def _integers(value: dict[str, Any], name: str, n: int) -> tuple[int, ...]:
    counts = value[name]
    if type(counts) is not list or len(counts) != n:
        raise CodecError(f"field {name!r} is not a list of {n} numbers")
    for each in counts:
        if type(each) is not int or each < 0:
            raise CodecError(f"field {name!r} is not a list of numbers")
    return tuple(counts)


def _indices(value: dict[str, Any], name: str, n: int) -> tuple[int, ...]:
    indices = value[name]
    if type(indices) is not list or not all(type(each) is int and 0 <= each < n for each in indices):
        raise CodecError(f"field {name!r} is not a list of indices below {n}")
    return tuple(indices)


def parse_entry(lane: int, raw: tuple[bytes, list[bytes]], attempts: int = 0) -> Entry | Ref:
    """Returns the entry that Redis holds, or only its Ref if its fields are not those of an entry."""
    entry_id, flat = raw
    fields = dict(zip(flat[::2], flat[1::2], strict=False))
    try:
        counted_bytes = max(0, int(fields.get(b"size", 0)))
        ref = Ref(lane, entry_id, max(1, int(fields[b"n"])), max(1, int(fields[b"cost"])), counted_bytes)
        if ref.n > MAX_INPUTS or ref.cost > _MAX_TOKENS or counted_bytes > MAX_BODY_BYTES:
            return Ref(lane, entry_id, 0, 0)  # no gateway wrote this: the counters do not include it
        request_id = fields[b"id"].decode("ascii")
        position, deadline_ms = int(fields[b"pos"]), int(fields[b"deadline_ms"])
        if not (_REQUEST_ID.fullmatch(request_id) and 0 <= position < 2**31 and 0 <= deadline_ms <= _LATEST_MS):
            return ref
        return Entry(
            ref=ref,
            version=int(fields[b"v"]),
            request_id=request_id,
            position=position,
            deadline_ms=deadline_ms,
            bell=fields.get(b"bell", b"").decode("ascii"),
            traceparent=fields.get(b"traceparent", b"").decode("ascii", "replace"),
            revision=fields.get(b"revision", b"").decode("ascii"),
            body=fields[b"body"],
            attempts=attempts,
            job=b"job" in fields,
        )
    except (KeyError, ValueError):
        return Ref(lane, entry_id, 0, 0)
