"""Frames between the worker and its engine."""

from __future__ import annotations

import socket
import struct
from itertools import accumulate, pairwise
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.ipc import frames

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
HEADERS = st.dictionaries(st.text(), VALUES, max_size=5).map(lambda extra: extra | {"kind": "add"})


def read(data: bytes) -> list[frames.Frame]:
    """Returns the frames in these bytes."""
    return frames.Reader().feed(data)


def framed(header: bytes, payload: bytes = b"") -> bytes:
    """Returns a frame around bytes that need not be a header."""
    return struct.pack("!II", len(header), len(payload)) + header + payload


@given(HEADERS, st.binary(max_size=200))
def test_a_frame_comes_back_as_it_was_written(header: dict[str, Any], payload: bytes) -> None:
    """Both its parts are whole."""
    assert read(frames.encode(header, payload)) == [(header, payload)]


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=40)), max_size=4), st.lists(st.integers(0, 400), max_size=8))
def test_frames_come_however_they_are_cut(sent: list[frames.Frame], cuts: list[int]) -> None:
    """Each comes with its last byte: not before, and not later."""
    data = b"".join(frames.encode(*frame) for frame in sent)
    ends = list(accumulate(len(frames.encode(*frame)) for frame in sent))
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader, found = frames.Reader(), []
    for start, stop in pairwise(places):
        found += reader.feed(data[start:stop])
        assert len(found) == sum(end <= stop for end in ends)
    assert found == sent


def test_frames_come_from_a_socket_until_its_end() -> None:
    """Half a frame is none: whoever wrote it is dead."""
    writer, reader = socket.socketpair()
    with reader:
        writer.sendall(frames.encode({"kind": "a"}, b"12") + frames.encode({"kind": "b"}) + b"\0\0")
        writer.close()
        assert list(frames.receive(reader)) == [({"kind": "a"}, b"12"), ({"kind": "b"}, b"")]


def test_a_writer_that_was_killed_is_the_end() -> None:
    """With something for it left unread, its end of the socket is reset, not closed."""
    writer, reader = socket.socketpair()
    with reader:
        reader.sendall(b"for the writer")
        writer.close()
        assert list(frames.receive(reader)) == []


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        msgpack.packb([1]),
        msgpack.packb({}),
        msgpack.packb({"kind": 1}),
        msgpack.packb({1: 2, "kind": "add"}),
        msgpack.packb({"kind": "add"}) + b"x",
        msgpack.packb({"kind": "add", "x": msgpack.ExtType(5, b"12")}),
        msgpack.packb({"kind": b"add"}),
        b"\x81\xa4kind\xa1\xff",
    ],
)
def test_what_is_no_header_is_refused(header: bytes) -> None:
    """Only a map with a kind is a header; nothing else is guessed at."""
    with pytest.raises(frames.FrameError, match=r"header|kind"):
        read(framed(header, b"12"))


def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    """Its announced size alone is enough, so no memory is given to it."""
    with pytest.raises(frames.FrameError, match="over the limit"):
        read(struct.pack("!II", 8, frames.MAX_FRAME_BYTES))


@given(st.binary(max_size=64))
def test_noise_is_nothing_or_an_error(noise: bytes) -> None:
    """Whatever bytes come, the reader neither hangs nor fails in another way."""
    try:
        found = read(noise)
    except frames.FrameError:
        return
    assert all(isinstance(header["kind"], str) for header, _ in found)
