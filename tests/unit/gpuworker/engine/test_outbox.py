"""Frames from the engine to the worker: all arrive whole; short ones in order, and long ones in order."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import numpy as np
import pytest

from gpuworker.engine import result_frames
from gpuworker.engine.outbox import Outbox
from gpuworker.engine.result_frames import encode_result
from gpuworker.engine.work import BatchResult, EntryTask
from gpuworker.ipc import framing
from gpuworker.ipc.messages import BatchCompleted, EntriesReturned, EntryFailure, EntryResult, SharedMessage
from gpuworker.ipc.shared_memory import (
    MIN_SHARED_BYTES,
    SharedMemoryReader,
    SharedMemoryWriter,
    create_shared_memory,
)
from tests.waiting import wait_until

SENDERS = 4
FRAMES = 60
SHORT = b"s"
LONG = b"l" * 200_000  # far more than the socket accepts at once, so that a thread sends it
SOCKET_BYTES = 32_768
OUTBOX_FRAMES = 64
LONG_S = 30.0


@pytest.fixture(autouse=True)
def _no_end_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the exit of the engine, which would end the tests with success, by the end of a thread."""
    monkeypatch.setattr("gpuworker.engine.outbox.os._exit", sys.exit)


@contextmanager
def ends(memory: SharedMemoryWriter | None = None) -> Iterator[tuple[Outbox, socket.socket]]:
    """An outbox with a running thread, and the worker's end of its socket, which accepts little at a time."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        theirs.settimeout(LONG_S)
        outbox = Outbox(ours, memory)
        threading.Thread(target=outbox.run, daemon=True).start()
        yield outbox, theirs


def read(theirs: socket.socket, number: int) -> list[framing.Frame]:
    """Reads this number of frames, as a worker does."""
    return list(islice(framing.receive(theirs), number))


def completed(found: list[framing.Frame]) -> list[tuple[BatchCompleted, bytes]]:
    """Returns the frames with results of batches."""
    return [(message, payload) for message, payload in found if isinstance(message, BatchCompleted)]


def test_frames_of_several_threads_come_whole_and_in_order() -> None:
    """Short frames go at once and long ones by a thread: they do not mix, and each of the two kinds keeps its order."""
    with ends() as (outbox, theirs):

        def send(sender: int) -> None:
            for number in range(FRAMES):
                payload = LONG if number % 3 == 0 else SHORT
                outbox.put(framing.encode(BatchCompleted(sender, size=number), payload))

        senders = [threading.Thread(target=send, args=(sender,), daemon=True) for sender in range(SENDERS)]
        for each in senders:
            each.start()
        found = read(theirs, SENDERS * FRAMES)
    for sender in range(SENDERS):
        mine = [(ran.size, payload) for ran, payload in completed(found) if ran.batch == sender]
        short = [number for number, payload in mine if payload == SHORT]
        long = [number for number, payload in mine if payload == LONG]
        assert short == [number for number in range(FRAMES) if number % 3]
        assert long == list(range(0, FRAMES, 3))


async def test_long_frames_hold_a_runner_up_when_the_outbox_is_full() -> None:
    """While the worker does not read, one frame is on its way and 64 wait; the next waits to be put; none is lost."""

    def put(number: int) -> None:
        outbox.put(framing.encode(BatchCompleted(number), LONG))

    with ends() as (outbox, theirs):
        for number in range(1 + OUTBOX_FRAMES):
            put(number)
        blocked = threading.Thread(target=put, args=(1 + OUTBOX_FRAMES,), daemon=True)
        blocked.start()
        until = time.monotonic() + 0.05
        await wait_until(lambda: time.monotonic() > until, "it had time to end")
        assert blocked.is_alive()
        found = read(theirs, 2 + OUTBOX_FRAMES)
        blocked.join(LONG_S)
    assert [ran.batch for ran, _ in completed(found)] == list(range(2 + OUTBOX_FRAMES))
    assert all(payload == LONG for _, payload in found)


async def test_calls_back_when_a_long_frame_is_sent() -> None:
    """Not before: until the worker has it, a death accuses its entries."""
    sent = threading.Event()
    with ends() as (outbox, theirs):
        assert not outbox.put(framing.encode(BatchCompleted(0), SHORT))
        for number in range(2):
            assert outbox.put(framing.encode(BatchCompleted(number), LONG))
        outbox.call_later(sent.set)
        assert not sent.wait(0.05)
        read(theirs, 3)
        await wait_until(sent.is_set, "the frames are sent")


def test_frames_over_a_mebibyte_go_through_shared_memory_while_it_has_room() -> None:
    """The socket says where; a frame for which there is no room goes through the socket, until one has been read."""
    descriptor = create_shared_memory(3 * MIN_SHARED_BYTES)
    reader = SharedMemoryReader(os.dup(descriptor))
    payload = os.urandom(2 * MIN_SHARED_BYTES)
    with ends(SharedMemoryWriter(descriptor)) as (outbox, theirs):
        for number in range(2):
            outbox.put(framing.encode(BatchCompleted(number), payload))
        (first, _), (second, second_payload) = read(theirs, 2)
        assert isinstance(first, SharedMessage)
        assert framing.decode(reader.read(first.at, first.size)) == (BatchCompleted(0), payload)
        assert (second, second_payload) == (BatchCompleted(1), payload)
        outbox.free(first.at)
        outbox.put(framing.encode(BatchCompleted(2), payload))
        [(third, _)] = read(theirs, 1)
        assert isinstance(third, SharedMessage)
        assert framing.decode(reader.read(third.at, third.size)) == (BatchCompleted(2), payload)


def test_a_message_has_been_sent_when_send_returns() -> None:
    """The worker reads it even if the engine dies in the next moment."""
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            Outbox(ours).send(EntriesReturned(("a",)))
        assert list(framing.receive(theirs)) == [(EntriesReturned(("a",)), b"")]


def test_an_engine_without_a_worker_ends() -> None:
    """A message that cannot be sent ends the process, with exit code 0."""
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(SystemExit) as ended:
        Outbox(ours).send(EntriesReturned(("a",)))
    assert ended.value.code == 0


def test_the_vectors_of_a_batch_follow_its_frame_in_order() -> None:
    """The vectors of completed entries are float32 without a change; a failed entry has a code and no vectors."""
    vectors = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    short = vectors[1, :3]
    one, two = (EntryTask(key, texts, 0.0, 9.0) for key, texts in (("a", ("x", "y")), ("b", ("z",))))
    one.outputs[:], two.outputs[:] = list(vectors), [short]
    one.tokens, one.tokenize_s, one.tokenized_at, one.started_at = [4, 3], 0.125, 0.5, 1.0
    two.tokens, two.tokenize_s, two.tokenized_at, two.started_at = [2], 0.25, 1.5, 2.0
    one.truncated, one.batch_size = [1], 3
    ran = BatchResult(
        3,
        5,
        30,
        36,
        7.5,
        0.5,
        0.25,
        0.125,
        completed=[one, two],
        failures=[EntryFailure("c", "input_failed", "It failed.")],
    )
    [(message, payload)] = completed(framing.FrameReader().feed(b"".join(encode_result(ran))))
    assert payload == vectors.tobytes() + short.tobytes()
    assert message == BatchCompleted(
        message.batch,
        size=3,
        inputs=5,
        tokens=30,
        padded_tokens=36,
        cost=7.5,
        run_s=0.5,
        gap_s=0.25,
        busy_s=0.125,
        results=(
            EntryResult("a", 32, 4, (), (4, 3), 0.125, 0.5, 1.0, (1,), 3),
            EntryResult("b", 12, 3, (), (2,), 0.25, 1.5, 2.0),
        ),
        failures=(EntryFailure("c", "input_failed", "It failed."),),
    )


def test_the_frames_of_a_batch_have_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of other batches, from other threads, may come between them."""
    monkeypatch.setattr(result_frames, "MAX_PAYLOAD_BYTES", 1)
    tasks = [EntryTask(key, ("x",), 0.0, 9.0) for key in "abc"]
    for each in tasks:
        each.outputs[:], each.started_at = [np.zeros(4, np.float32)], 1.0
    sent = [framing.FrameReader().feed(b"".join(encode_result(BatchResult(3, completed=tasks)))) for _ in range(2)]
    (first, *others), again = ([ran.batch for ran, _ in completed(found)] for found in sent)
    assert others == [first] * 2
    assert again == [first + 1] * 3


def test_a_batch_without_completed_entries_has_no_vectors() -> None:
    """Its frame can be read, and has an empty payload."""
    ran = BatchResult(failures=[EntryFailure("c", "input_failed", "It failed.")])
    [(message, payload)] = completed(framing.FrameReader().feed(b"".join(encode_result(ran))))
    assert (message.results, payload) == ((), b"")
