"""Codec: decoding returns the encoded value, and anything else is a CodecError."""

from __future__ import annotations

import json
import math
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import codec
from shared.codec import (
    CodecError,
    decode_binary,
    decode_body,
    decode_ids,
    decode_reply,
    encode_binary,
    encode_body,
    encode_ids,
    encode_reply,
    input_size,
)
from shared.messages import (
    BINARY_KINDS,
    BYTES,
    DEFAULT_OPTIONS,
    EMBED,
    OPS,
    PARTS,
    PREDICT,
    SCORE,
    Body,
    Failure,
    FailureOrigin,
    Options,
    Timing,
    TooLong,
    Values,
    Vectors,
)

TEXTS = st.text()  # every code point but surrogates
TOKEN_IDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8)
OPTIONS = st.builds(
    Options,
    prompt_name=st.none() | st.text(max_size=codec.MAX_PROMPT_NAME),
    normalize=st.none() | st.booleans(),
    dimensions=st.none() | st.integers(1, codec.MAX_DIM),
    truncate=st.sampled_from(["right", "left", "no"]),
    special_tokens=st.booleans(),
    query=st.none() | TEXTS,
    instruction=st.none() | st.text(max_size=codec.MAX_INSTRUCTION),
    max_tokens=st.none() | st.integers(1, codec.MAX_CUT_TOKENS),
    max_query_tokens=st.none() | st.integers(1, codec.MAX_CUT_TOKENS),
    max_document_tokens=st.none() | st.integers(1, codec.MAX_CUT_TOKENS),
    parts=st.lists(st.sampled_from(PARTS), unique=True).map(tuple),
)
BODIES = st.builds(
    Body,
    op=st.text(min_size=1),
    inputs=st.lists(TEXTS | TOKEN_IDS.map(encode_ids), min_size=1, max_size=32).map(tuple),
    options=st.just(DEFAULT_OPTIONS) | OPTIONS,
)
BINARY = st.builds(encode_binary, st.sampled_from(BINARY_KINDS), st.binary())
PREDICT_BODIES = st.builds(
    Body, op=st.just(PREDICT), inputs=st.lists(TEXTS | BINARY, min_size=1, max_size=32).map(tuple), options=OPTIONS
)
IDS = st.text("0123456789abcdef", min_size=1, max_size=32)
POSITIONS = st.integers(0, 2**31)
DURATIONS = st.floats(0, 1e9) | st.integers(0, 10**9)
NAMES = st.from_regex(r"[\w.:-]{0,128}", fullmatch=True)
FAILURES = st.integers(1, 1_024).flatmap(
    lambda n: st.builds(
        Failure,
        request_id=IDS,
        position=POSITIONS,
        n=st.just(n),
        code=st.text(),
        message=st.text(),
        input_index=st.none() | st.integers(0, n - 1),
        origin=st.builds(FailureOrigin, worker=NAMES, exception=NAMES, is_loggable=st.booleans()),
        too_long=st.none() | st.builds(TooLong, POSITIONS, POSITIONS),
    )
)


TIMINGS = st.builds(
    Timing, queue_ms=DURATIONS, inference_ms=DURATIONS, batch_size=st.integers(0, 1_000), tokenize_ms=DURATIONS
)


def tokens_of(n: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Returns n numbers of tokens, or none, as in replies without them."""
    return st.just(()) | st.lists(st.integers(0, 10**6), min_size=n, max_size=n).map(tuple)


@st.composite
def vectors(draw: st.DrawFn) -> Vectors:
    """A reply whose data has the length that it states."""
    n, dim = draw(st.integers(1, 8)), draw(st.integers(1, 16))
    counts = draw(st.just(()) | st.lists(st.integers(0, 4), min_size=n, max_size=n).map(tuple))
    size = (sum(counts) if counts else n) * dim * 4
    data = draw(st.binary(min_size=size, max_size=size))
    truncated = draw(st.lists(st.integers(0, n - 1), unique=True).map(tuple))
    timing, tokens = draw(TIMINGS), draw(tokens_of(n))
    return Vectors(draw(IDS), draw(POSITIONS), n, dim, data, timing, tokens, counts, draw(IDS), truncated)


@st.composite
def values(draw: st.DrawFn) -> Values:
    """A reply with the number of values that it states."""
    contents = draw(st.lists(st.text() | st.lists(st.integers(0, 9)), min_size=1, max_size=8))
    data = tuple(json.dumps(each).encode() for each in contents)
    n = len(contents)
    truncated = draw(st.lists(st.integers(0, n - 1), unique=True).map(tuple))
    return Values(draw(IDS), draw(POSITIONS), n, data, draw(TIMINGS), draw(tokens_of(n)), draw(IDS), truncated)


REPLY: dict[str, Any] = {
    "v": 1,
    "id": "abc",
    "pos": 0,
    "n": 2,
    "dim": 3,
    "data": b"\0" * 24,
    "queue_ms": 1.0,
    "inference_ms": 2.0,
    "batch": 2,
    "tokens": [7, 0],
    "tokenize_ms": 0.5,
    "revision": "abc",
    "truncated": [1],
}
EACH_TOKEN: dict[str, Any] = REPLY | {"counts": [2, 0]}
VALUES: dict[str, Any] = {name: value for name, value in REPLY.items() if name not in ("dim", "data")} | {
    "values": [b'"a"', b'"b"']
}
FAILURE: dict[str, Any] = {"v": 1, "id": "abc", "pos": 0, "n": 2, "code": "internal", "message": "no", "input": 1}
BODY: dict[str, Any] = {"op": EMBED, "inputs": ["a"], "options": {}}


@given(BODIES | PREDICT_BODIES)
def test_a_body_comes_back_as_it_went_in(body: Body) -> None:
    """A body with any op, texts without surrogates, token ids, binary inputs and options is decoded to itself."""
    assert decode_body(encode_body(body)) == body


@given(vectors() | values() | FAILURES)
def test_a_reply_comes_back_as_it_went_in(reply: Vectors | Values | Failure) -> None:
    """Vectors with their timing, values and failures are decoded to themselves."""
    assert decode_reply(encode_reply(reply)) == reply


@pytest.mark.parametrize("name", ["a text of a client", "x" * 129, "a\n", 7, None])
def test_what_is_no_name_of_a_worker_or_class_is_left_out(name: object) -> None:
    """It would get into the log of a gateway."""
    origin = {"worker": name, "exception": name}
    decoded = decode_reply(msgpack.packb(FAILURE | origin))
    assert decoded == decode_reply(msgpack.packb(FAILURE))


@given(vectors() | values() | FAILURES)
def test_a_reply_may_have_fields_of_a_later_version(reply: Vectors | Values | Failure) -> None:
    """Workers are upgraded before gateways: a gateway reads the replies of a newer worker, without what is new."""
    later = msgpack.packb(msgpack.unpackb(encode_reply(reply)) | {"later": [1, "x"]})
    assert decode_reply(later) == reply


@given(vectors() | values())
def test_a_reply_in_which_nothing_was_cut_is_as_before(reply: Vectors | Values) -> None:
    """The field is there only if it says something; a map of up to 15 fields is all that job_results.lua reads."""
    fields = msgpack.unpackb(encode_reply(reply))
    assert ("truncated" in fields) == bool(reply.truncated)
    assert len(fields) <= 15


@given(TOKEN_IDS)
def test_token_ids_come_back_as_they_went_in(ids: list[int]) -> None:
    """Token ids are decoded to themselves, and have four bytes each."""
    assert decode_ids(encode_ids(ids)) == ids
    assert len(encode_ids(ids)) == 4 * len(ids)


@given(st.sampled_from(BINARY_KINDS), st.binary())
def test_a_binary_input_comes_back_as_it_went_in(kind: str, data: bytes) -> None:
    """Kind and data are decoded to themselves, also for no data, and its size is that of the data."""
    value = encode_binary(kind, data)
    assert decode_binary(value) == (kind, data)
    assert input_size(value) == len(data)


@given(TEXTS)
def test_the_size_of_a_text_is_that_of_its_utf_8(text: str) -> None:
    """Characters beyond ASCII count with all of their bytes."""
    assert input_size(text) == len(text.encode())


@given(st.lists(TEXTS, max_size=3), BINARY, st.lists(BINARY, max_size=3))
def test_an_older_worker_hands_a_binary_input_back(texts: list[str], value: bytes, more: list[bytes]) -> None:
    """By the rules before binary inputs, the body is well formed and its op unknown, so nothing misreads it.

    Those rules: an input is a text, or bytes whose length is a multiple of 4 and above 0.
    """
    fields = msgpack.unpackb(encode_body(Body(PREDICT, (*texts, value, *more))))
    assert all(isinstance(each, str) or (each and len(each) % 4 == 0) for each in fields["inputs"])
    assert fields["op"] not in OPS
    assert fields["options"] == {}


def test_a_body_without_binary_inputs_is_as_before() -> None:
    """Older workers run functions with JSON inputs."""
    assert msgpack.unpackb(encode_body(Body(PREDICT, ("1",)))) == {"op": PREDICT, "inputs": ["1"], "options": {}}


def test_an_older_worker_hands_a_query_back() -> None:
    """It knows neither the op nor the query; by its rules the options are valid, so it looks at the op."""
    fields = msgpack.unpackb(encode_body(Body(SCORE, ("a", "b"), Options(query="q", truncate="left"))))
    assert fields == {"op": SCORE, "inputs": ["a", "b"], "options": {"truncate": "left"}, "query": "q"}


def test_binary_inputs_are_not_inflated() -> None:
    """In Redis a megabyte takes a megabyte."""
    data = bytes(range(256)) * 4096
    assert len(encode_body(Body(PREDICT, (encode_binary(BYTES, data),)))) < len(data) + 100


def test_a_lone_surrogate_cannot_be_encoded() -> None:
    """UTF-8 has no bytes for a lone surrogate: the caller has to reject such a text."""
    with pytest.raises(UnicodeEncodeError):
        encode_body(Body(EMBED, ("\ud800",)))


@given(st.binary(max_size=300))
def test_random_bytes_are_a_codec_error_or_nothing_worse(data: bytes) -> None:
    """No bytes raise anything but CodecError."""
    for decode in (decode_body, decode_reply):
        try:
            decode(data)
        except CodecError:
            continue


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.binary(), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from([REPLY, EACH_TOKEN, VALUES, FAILURE, BODY]), st.data())
def test_a_field_with_any_value_is_taken_or_refused(whole: dict[str, Any], data: st.DataObject) -> None:
    """With any value in one field, decoding raises only CodecError, and a decoded message has the right types."""
    name = data.draw(st.sampled_from(sorted(whole)))
    packed = msgpack.packb({**whole, name: data.draw(ANYTHING)})
    decode = decode_body if whole is BODY else decode_reply
    try:
        found = decode(packed)
    except CodecError:
        return
    if isinstance(found, Vectors):
        assert len(found.data) == (sum(found.counts) if found.counts else found.n) * found.dim * 4
        assert {type(found.position), type(found.n), type(found.dim), type(found.timing.batch_size)} == {int}
        assert math.isfinite(found.timing.queue_ms + found.timing.inference_ms)
    elif isinstance(found, Values):
        assert {type(each) for each in found.values} == {bytes}
        assert len(found.values) == found.n
    elif isinstance(found, Failure):
        assert {type(found.request_id), type(found.code), type(found.message)} == {str}
    else:
        assert {type(each) for each in found.inputs} <= {str, bytes}
        assert isinstance(found.options, Options)


@given(st.sampled_from([REPLY, EACH_TOKEN, VALUES, FAILURE, BODY]), st.data())
def test_a_cut_or_flipped_message_raises_nothing_else(whole: dict[str, Any], data: st.DataObject) -> None:
    """A truncated message raises CodecError; a changed byte raises it too, or yields a message of the right shape."""
    packed = bytearray(msgpack.packb(whole))
    decode = decode_body if whole is BODY else decode_reply
    with pytest.raises(CodecError):
        decode(bytes(packed[: data.draw(st.integers(0, len(packed) - 1))]))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(packed))
    except CodecError:
        return


WRONG: list[dict[str, Any]] = [
    *({**REPLY, name: value} for name in ("v", "pos", "n", "dim", "batch") for value in (True, "1", 1.0, None, -1)),
    *(
        {**REPLY, name: value}
        for name in ("queue_ms", "inference_ms")
        for value in (True, "1", math.nan, math.inf, -math.inf)
    ),
    *({**REPLY, "data": value} for value in (b"", b"\0" * 23, b"\0" * 25, "\0" * 24, [0] * 24)),
    *({**REPLY, "id": value} for value in (b"abc", 1, None)),
    *({**REPLY, name: value} for name, value in (("v", 2), ("n", 0), ("n", 1_025), ("dim", 0), ("dim", 65_537))),
    *({**FAILURE, name: value} for name in ("code", "message") for value in (b"x", 1, None, True)),
    *(
        {key: value for key, value in REPLY.items() if key != missing}
        for missing in REPLY.keys() - {"tokens", "tokenize_ms", "revision", "truncated"}
    ),
    *({**REPLY, "tokens": value} for value in (7, [7], [7, 0, 1], [7, -1], [True, 1], ["7", 0], None, 0, "")),
    *(
        {**reply, "truncated": value}
        for reply in (REPLY, VALUES)
        for value in (1, [2], [-1], [True], ["0"], None, {"0": 1}, "")
    ),
    *({**FAILURE, "input": value} for value in (2, -1, True, "0", None, [0])),
    {**REPLY, "pos": 2**32},
]


@pytest.mark.parametrize("value", WRONG, ids=str)
def test_a_reply_with_a_wrong_field_is_refused(value: dict[str, Any]) -> None:
    """Wrong types (a bool is no number), wrong ranges, missing fields, and vectors of another length are rejected."""
    with pytest.raises(CodecError):
        decode_reply(msgpack.packb(value))


def test_a_duration_may_be_an_integer() -> None:
    """It is decoded as a float."""
    decoded = decode_reply(msgpack.packb({**REPLY, "queue_ms": 1, "inference_ms": 2**64 - 1, "tokenize_ms": 0}))
    assert isinstance(decoded, Vectors)
    assert repr(decoded.timing) == repr(Timing(1.0, 2.0**64, 2, 0.0))


NO_OPTIONS: list[Any] = [
    *([], None, "x", {"no_such": None}, {"normalize": 1}, {"truncate": "up"}, {"prompt_name": b"query"}),
    *({"dimensions": value} for value in (0, -1, codec.MAX_DIM + 1, True, "3", 1.0)),
    {"prompt_name": "x" * (codec.MAX_PROMPT_NAME + 1)},
]
NO_INPUTS: list[Any] = [[], "a", [1], ["a", b"b"], [b""], [b"12345"], {"a": "b"}, None, ["a"] * 1_025]
WRONG_BODIES: list[dict[str, Any]] = [
    *({**BODY, "inputs": value} for value in NO_INPUTS),
    *({**BODY, "op": value} for value in (1, b"embed", None)),
    *(
        {**BODY, "op": codec.PREDICT_BINARY, "inputs": [value]}
        for value in (b"", b"\0", b"\2\0ab", b"\0\4aaaaaa", b"\0\1")
    ),
    {**BODY, "op": PREDICT, "inputs": [b"1234"]},
    *({**BODY, "options": value} for value in NO_OPTIONS),
    *({**BODY, "query": value} for value in (1, b"text", ["a"])),
    *({**BODY, "parts": value} for value in (None, "dense", ["colbert"], [1], ["dense"] * 4)),
    *({key: value for key, value in BODY.items() if key != missing} for missing in BODY),
]


@pytest.mark.parametrize("value", WRONG_BODIES, ids=lambda value: str(value)[:60])
def test_a_body_with_a_wrong_field_is_refused(value: dict[str, Any]) -> None:
    """Inputs are one to 1,024 texts or token ids, op is a string, options are a map of known options."""
    with pytest.raises(CodecError):
        decode_body(msgpack.packb(value))


CRAFTED = {
    "empty": b"",
    "not a map": msgpack.packb([1, 2]),
    "two messages": msgpack.packb(BODY) * 2,
    "extension type": msgpack.packb({**BODY, "options": {"x": msgpack.ExtType(5, b"boom")}}),
    "timestamp": msgpack.packb({**BODY, "options": {"x": msgpack.Timestamp(1)}}),
    "bad timestamp": b"\x83\xa2op\xa5embed\xa6inputs\x91\xa1a\xa7options\x81\xa1x\xc7\x00\xff",
    "deep arrays": b"\x91" * 100_000,
    "deep maps": b"\x81\xa1a" * 100_000,
    "huge array declared": b"\xdd\xff\xff\xff\xff",
    "huge map declared": b"\xdf\xff\xff\xff\xff",
    "huge string declared": b"\xdb\xff\xff\xff\xff",
    "huge binary declared": b"\xc6\xff\xff\xff\xff",
    "huge extension declared": b"\xc9\xff\xff\xff\xff\x01",
    "invalid UTF-8": b"\x81\xa2op\xa2\xff\xfe",
    "a surrogate in UTF-8": b"\x83\xa2op\xa5embed\xa6inputs\x91\xa3\xed\xa0\x80\xa7options\x80",
    "number keys": msgpack.packb({1: 2}),
    "array keys": b"\x81\x91\x01\x01",
    "map keys": b"\x81\x80\x01",
    "map keys in an input": b"\x83\xa2op\xa5embed\xa6inputs\x91\x81\x81\x80\x01\x01\xa7options\x80",
    "many objects in an input": msgpack.packb({**BODY, "inputs": [[[]] * 100_000]}),
    "never used byte": b"\xc1",
    "65 options": msgpack.packb({**BODY, "options": {str(i): i for i in range(65)}}),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_bytes_are_refused(name: str) -> None:
    """Bombs, extension types, broken UTF-8 and foreign shapes are CodecErrors for both decoders."""
    for decode in (decode_body, decode_reply):
        with pytest.raises(CodecError):
            decode(CRAFTED[name])


@pytest.mark.parametrize("options", [{"secret": 1}, {"truncate": "secret"}, {"prompt_name": "secret" * 50}])
def test_an_error_does_not_quote_the_data(options: dict[str, Any]) -> None:
    """Gateways and workers log it; inputs, and names that clients choose, do not belong there."""
    with pytest.raises(CodecError) as error:
        decode_body(msgpack.packb({**BODY, "options": options}))
    assert "secret" not in str(error.value)


def test_the_size_is_bounded_before_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data above the limit is rejected before parsing."""
    monkeypatch.setattr(codec, "MAX_BODY_BYTES", 64)
    monkeypatch.setattr(codec, "MAX_REPLY_BYTES", 64)
    for decode in (decode_body, decode_reply):
        with pytest.raises(CodecError, match="over the limit of 64"):
            decode(b"\x80" * 65)
