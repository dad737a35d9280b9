"""Frames between the worker and its engine."""

from __future__ import annotations

import socket
import struct
from itertools import accumulate, pairwise
from typing import get_args

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuworker.ipc import frames
from gpuworker.ipc.messages import Drain, DropEntries, FrameError, Message

MESSAGES = st.lists(st.text(), max_size=5).map(lambda keys: DropEntries(tuple(keys)))


def read(data: bytes) -> list[frames.Frame]:
    """Returns the frames in these bytes."""
    return frames.Reader().feed(data)


def framed(header: bytes, payload: bytes = b"") -> bytes:
    """Returns a frame around bytes that need not be a header."""
    return struct.pack("!II", len(header), len(payload)) + header + payload


@given(MESSAGES, st.binary(max_size=200))
def test_a_frame_comes_back_as_it_was_written(message: Message, payload: bytes) -> None:
    """Both its parts are whole."""
    assert read(frames.encode(message, payload)) == [(message, payload)]


@given(st.lists(st.tuples(MESSAGES, st.binary(max_size=40)), max_size=4), st.lists(st.integers(0, 400), max_size=8))
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
        writer.sendall(frames.encode(DropEntries(["a"]), b"12") + frames.encode(Drain()) + b"\0\0")
        writer.close()
        assert list(frames.receive(reader)) == [(DropEntries(("a",)), b"12"), (Drain(), b"")]


def test_a_writer_that_was_killed_is_the_end() -> None:
    """With something for it left unread, its end of the socket is reset, not closed."""
    writer, reader = socket.socketpair()
    with reader:
        reader.sendall(b"for the writer")
        writer.close()
        assert list(frames.receive(reader)) == []


@pytest.mark.parametrize("header", [b"", b"\xc1", msgpack.packb({"kind": "add"})])
def test_a_frame_without_a_message_is_refused(header: bytes) -> None:
    """The payload behind it is not guessed at."""
    with pytest.raises(FrameError, match="header"):
        read(framed(header, b"12"))


def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    """Its announced size alone is enough, so no memory is given to it."""
    with pytest.raises(FrameError, match="over the limit"):
        read(struct.pack("!II", 8, frames.MAX_FRAME_BYTES))


@given(st.binary(max_size=64))
def test_noise_is_nothing_or_an_error(noise: bytes) -> None:
    """Whatever bytes come, the reader neither hangs nor fails in another way."""
    try:
        found = read(noise)
    except FrameError:
        return
    assert all(isinstance(message, get_args(Message)) for message, _ in found)
