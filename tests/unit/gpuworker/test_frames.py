"""Frames between the worker and its engine."""

from __future__ import annotations

import asyncio
import io
import socket
import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker import frames

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
HEADERS = st.dictionaries(st.text(), VALUES, max_size=5).map(lambda extra: extra | {"kind": "add"})


async def read_async(data: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Reads from a stream that holds these bytes and has ended."""
    stream = asyncio.StreamReader()
    stream.feed_data(data)
    stream.feed_eof()
    return await frames.read_async(stream)


def framed(header: bytes, payload: bytes = b"") -> bytes:
    """Returns a frame around bytes that need not be a header."""
    return struct.pack("!II", len(header), len(payload)) + header + payload


@given(HEADERS, st.binary(max_size=200))
def test_both_readers_return_what_was_written(header: dict[str, Any], payload: bytes) -> None:
    """A frame comes back whole, by either way of reading."""
    data = frames.encode(header, payload)
    assert frames.read(io.BytesIO(data)) == (header, payload)
    assert asyncio.run(read_async(data)) == (header, payload)


def test_a_writer_that_was_killed_is_the_end() -> None:
    """With something for it left unread, its end of the socket is reset, not closed."""
    writer, reader = socket.socketpair()
    with reader, reader.makefile("rb") as stream:
        reader.sendall(b"for the writer")
        writer.close()
        assert frames.read(stream) is None


def test_frames_follow_each_other() -> None:
    """A reader takes exactly one frame and leaves the next."""
    stream = io.BytesIO(frames.encode({"kind": "a"}, b"12") + frames.encode({"kind": "b"}))
    assert frames.read(stream) == ({"kind": "a"}, b"12")
    assert frames.read(stream) == ({"kind": "b"}, b"")
    assert frames.read(stream) is None


@pytest.mark.parametrize("length", range(len(frames.encode({"kind": "drain"}, b"1234"))))
async def test_a_stream_that_ends_within_a_frame_has_ended(length: int) -> None:
    """Whoever wrote half a frame is dead: what came of it is no frame."""
    data = frames.encode({"kind": "drain"}, b"1234")[:length]
    assert frames.read(io.BytesIO(data)) is None
    assert await read_async(data) is None


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
async def test_what_is_no_header_is_refused(header: bytes) -> None:
    """Only a map with a kind is a header; nothing else is guessed at."""
    with pytest.raises(frames.FrameError, match=r"header|kind"):
        frames.read(io.BytesIO(framed(header, b"12")))
    with pytest.raises(frames.FrameError, match=r"header|kind"):
        await read_async(framed(header, b"12"))


async def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    """Its announced size alone is enough, so no memory is given to it."""
    head = struct.pack("!II", 8, frames.MAX_FRAME_BYTES)
    with pytest.raises(frames.FrameError, match="over the limit"):
        frames.read(io.BytesIO(head))
    with pytest.raises(frames.FrameError, match="over the limit"):
        await read_async(head)


@given(st.binary(max_size=64))
def test_noise_is_nothing_or_an_error(noise: bytes) -> None:
    """Whatever bytes come, the reader neither hangs nor fails in another way."""
    try:
        found = frames.read(io.BytesIO(noise))
    except frames.FrameError:
        return
    assert found is None or isinstance(found[0]["kind"], str)
