"""The messages between a worker and its engine: each comes back as it was sent, and nothing else is accepted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from gpuworker.ipc.messages import (
    AddEntries,
    BatchCompleted,
    EngineEntry,
    EntriesReturned,
    EntryFailure,
    EntryResult,
    FrameError,
    GrantTurn,
    Message,
    Ready,
    SharedMessage,
    decode_message,
    encode_message,
)
from shared.messages import DEFAULT_OPTIONS, Options

INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)


def tuples_of(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Returns a strategy for short tuples of any length."""
    return st.lists(items, max_size=3).map(tuple)


st.register_type_strategy(int, INTEGERS)
st.register_type_strategy(float, FLOATS)
OPTIONS = st.builds(Options, truncate=st.sampled_from(["right", "left", "no"]))
ENTRIES = st.builds(EngineEntry, inputs=tuples_of(st.text() | st.binary()), options=st.none() | OPTIONS)
RESULTS = st.builds(EntryResult, counts=tuples_of(INTEGERS), tokens=tuples_of(INTEGERS), truncated=tuples_of(INTEGERS))
FAILURES = st.builds(EntryFailure, input_index=st.none() | INTEGERS)
SEQUENCES = {
    "entries": tuples_of(ENTRIES),
    "keys": tuples_of(st.text()),
    "unfinished_keys": tuples_of(st.text()),
    "results": tuples_of(RESULTS),
    "failures": tuples_of(FAILURES),
}
"""Of the fields that hold several values: tuples, as which they come back."""

RESULT = EntryResult("0/1-0", 4, 1, (), (1,), 0.5, 1.5, 2.5)
ENTRY = EngineEntry("0/1-0", "embed", ("text",), None, 0.5, 1.5, 0, False, 3, 7)


def messages_of(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Returns a strategy for the messages of a kind."""
    return st.builds(kind, **{name: values for name, values in SEQUENCES.items() if name in kind.__struct_fields__})


def encode_raw(*values: object) -> bytes:
    """Returns an array on the wire that need not be a message."""
    packed: bytes = msgpack.packb(values)
    return packed


@pytest.mark.parametrize("kind", get_args(Message), ids=lambda kind: kind.__name__)
@given(st.data())
def test_each_kind_comes_back_as_it_was_sent(kind: type[Message], data: st.DataObject) -> None:
    """All fields are equal, and of the same types."""
    message = data.draw(messages_of(kind))
    decoded = decode_message(encode_message(message))
    assert decoded == message
    assert repr(decoded) == repr(message)


def test_lists_come_back_as_tuples() -> None:
    """A decoded message cannot change, and neither can the rows in it."""
    assert decode_message(encode_raw("EntriesReturned", ["a", "b"])) == EntriesReturned(("a", "b"))
    sent = BatchCompleted(results=(RESULT._replace(tokens=(1, 2)),))
    assert decode_message(encode_message(sent)) == sent


def test_options_come_back_as_options() -> None:
    """Rows hold named tuples at every depth."""
    sent = AddEntries((ENTRY, ENTRY._replace(options=DEFAULT_OPTIONS._replace(dimensions=8))))
    decoded = decode_message(encode_message(sent))
    assert isinstance(decoded, AddEntries)
    assert [type(each.options) for each in decoded.entries] == [type(None), Options]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        encode_raw(),
        encode_raw(1),
        encode_raw(b"Drain"),
        encode_raw(["Drain"]),
        msgpack.packb({"kind": "Drain"}),
        msgpack.packb("Drain"),
        encode_raw("Drain") + b"x",
        encode_raw("GrantTurn", msgpack.ExtType(5, b"12")),
        b"\x91\xa1\xff",
        b"\x91" * 2_000,
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    """Only an array that begins with a kind is a message."""
    with pytest.raises(FrameError, match="header"):
        decode_message(data)


@pytest.mark.parametrize("kind", ["", "drain", "Message", "EntryResult", "FrameError"])
def test_an_unknown_kind_is_refused(kind: str) -> None:
    """Other names of the module are no kinds."""
    with pytest.raises(FrameError, match="header is no message"):
        decode_message(encode_raw(kind))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (("Drain", 1), "at most length 0, got 1"),
        (("SharedMessage", 1), "at least length 3, got 2"),
        (("SharedMessage", 1, "2"), "got `str` - at `$[2]`"),
        (("SharedMessage", True, 2), "got `bool` - at `$[1]`"),
        (("SharedMessage", 1, 2.0), "got `float` - at `$[2]`"),
        (("GrantTurn", None), "got `None` - at `$[1]`"),
        (("GrantTurn", b"0.0"), "got `bytes` - at `$[1]`"),
        (("DropEntries", "ab"), "got `str` - at `$[1]`"),
        (("DropEntries", {"a": 1}), "got `object` - at `$[1]`"),
        (("DropEntries", ["a", 1]), "got `int` - at `$[1][1]`"),
    ],
)
def test_a_malformed_field_is_refused_by_position(values: Sequence[object], reason: str) -> None:
    """Types are exact: a bool is no int, bytes are no text."""
    with pytest.raises(FrameError, match=re.escape(reason)):
        decode_message(encode_raw(*values))


@pytest.mark.parametrize(
    "rows",
    [
        1,
        "text",
        [1],
        ["12345678"],
        [b"12345678"],
        [RESULT[:7]],
        [(*RESULT, 1)],
        [RESULT, RESULT[:7]],
        [RESULT._replace(size=True)],
        [(*RESULT[:4], ["1"], *RESULT[5:])],
        [dict.fromkeys("abcdefgh", 1)],
    ],
)
def test_a_malformed_row_is_refused(rows: object) -> None:
    """Rows are arrays with the number of fields of their class, all of the right types."""
    index = BatchCompleted.__struct_fields__.index("results")
    values = list(astuple(BatchCompleted()))
    values[index] = rows
    with pytest.raises(FrameError, match=re.escape(f" - at `$[{index + 1}]")):
        decode_message(encode_raw("BatchCompleted", *values))


@pytest.mark.parametrize(
    "options",
    [
        1,
        "left",
        (*DEFAULT_OPTIONS, 1),
        DEFAULT_OPTIONS._replace(dimensions=True),
        (None, None, None, "up", True),
    ],
)
def test_malformed_options_are_refused(options: object) -> None:
    """Options have at most the fields of their class, all of the right types."""
    row = (*ENTRY[:3], options, *ENTRY[4:])
    with pytest.raises(FrameError, match=re.escape(" - at `$[1][0][3]")):
        decode_message(encode_raw("AddEntries", [row]))


@given(st.binary(max_size=64))
def test_noise_is_a_message_or_an_error(noise: bytes) -> None:
    """No bytes make decoding fail in another way."""
    try:
        message = decode_message(noise)
    except FrameError:
        return
    assert isinstance(message, get_args(Message))


def test_a_message_may_be_read_from_shared_memory() -> None:
    """A view of the memory is decoded without a copy of its bytes."""
    for message in (SharedMessage(1, 2), GrantTurn("0.0"), Ready("model", 384)):
        assert decode_message(memoryview(encode_message(message))) == message
