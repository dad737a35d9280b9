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

from gpuworker.ipc import framing
from gpuworker.ipc.messages import Drain, DropEntries, FrameError, Message

MESSAGES = st.lists(st.text(), max_size=5).map(lambda keys: DropEntries(tuple(keys)))


def read_frames(data: bytes) -> list[framing.Frame]:
    """Returns the frames in these bytes."""
    return framing.FrameReader().feed(data)


def raw_frame(header: bytes, payload: bytes = b"") -> bytes:
    """Returns a frame with a message that need not be one."""
    return struct.pack("!II", len(header), len(payload)) + header + payload


@given(MESSAGES, st.binary(max_size=200))
def test_a_frame_is_read_as_it_was_written(message: Message, payload: bytes) -> None:
    """Its message and its payload are whole."""
    assert read_frames(framing.encode(message, payload)) == [(message, payload)]


@given(st.lists(st.tuples(MESSAGES, st.binary(max_size=40)), max_size=4), st.lists(st.integers(0, 400), max_size=8))
def test_frames_are_read_wherever_the_stream_is_cut(sent: list[framing.Frame], cuts: list[int]) -> None:
    """Each frame is returned with its last byte: not before, and not later."""
    data = b"".join(framing.encode(*frame) for frame in sent)
    ends = list(accumulate(len(framing.encode(*frame)) for frame in sent))
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader, found = framing.FrameReader(), []
    for start, stop in pairwise(places):
        found += reader.feed(data[start:stop])
        assert len(found) == sum(end <= stop for end in ends)
    assert found == sent


def test_frames_are_received_until_the_socket_ends() -> None:
    """Half a frame at the end is ignored: its writer is dead."""
    writer, reader = socket.socketpair()
    with reader:
        writer.sendall(framing.encode(DropEntries(("a",)), b"12") + framing.encode(Drain()) + b"\0\0")
        writer.close()
        assert list(framing.receive(reader)) == [(DropEntries(("a",)), b"12"), (Drain(), b"")]


def test_a_killed_writer_ends_the_frames() -> None:
    """If it left data unread, its end of the socket is reset, not closed."""
    writer, reader = socket.socketpair()
    with reader:
        reader.sendall(b"for the writer")
        writer.close()
        assert list(framing.receive(reader)) == []


@pytest.mark.parametrize("header", [b"", b"\xc1", msgpack.packb({"kind": "add"})])
def test_a_frame_without_a_message_is_refused(header: bytes) -> None:
    """The error names the header, and the payload is not used."""
    with pytest.raises(FrameError, match="header"):
        read_frames(raw_frame(header, b"12"))


def test_a_frame_over_the_limit_is_refused_before_it_arrives() -> None:
    """Its announced size is enough, so that it takes no memory."""
    with pytest.raises(FrameError, match="over the limit"):
        read_frames(struct.pack("!II", 8, framing.MAX_FRAME_BYTES))


@given(st.binary(max_size=64))
def test_noise_gives_frames_or_an_error(noise: bytes) -> None:
    """No bytes make the reader hang or fail in another way."""
    try:
        found = read_frames(noise)
    except FrameError:
        return
    assert all(isinstance(message, get_args(Message)) for message, _ in found)
