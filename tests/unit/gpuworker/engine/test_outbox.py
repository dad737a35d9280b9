"""Frames from the engine to the worker: whole, all of them, and of each kind in order."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import numpy as np
import pytest

from gpuworker.ipc import frames
from gpuworker.engine import result_frames
from gpuworker.engine.outbox import Outbox
from gpuworker.engine.result_frames import reports_of
from gpuworker.engine.work import Failed, Ran, Work
from tests.waiting import wait_until

SENDERS = 4
FRAMES = 60
SHORT = b"s"
LONG = b"l" * 200_000  # far more than the socket takes at once, so that a thread sends it
SOCKET_BYTES = 32_768
OUTBOX_FRAMES = 64
LONG_S = 30.0


@pytest.fixture(autouse=True)
def _no_end_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends an engine would end the tests, and well: here it ends a thread."""
    monkeypatch.setattr("gpuworker.engine.outbox.os._exit", sys.exit)


@contextmanager
def ends() -> Iterator[tuple[Outbox, socket.socket]]:
    """An outbox whose thread runs, and the worker's end of its socket, which takes little at a time."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        theirs.settimeout(LONG_S)
        outbox = Outbox(ours)
        threading.Thread(target=outbox.run, daemon=True).start()
        yield outbox, theirs


def read(theirs: socket.socket, number: int) -> list[tuple[frames.Header, bytes]]:
    """Reads so many frames, as a worker does."""
    return list(islice(frames.receive(theirs), number))


def test_frames_of_several_threads_come_whole_and_in_order() -> None:
    """Short ones go at once and long ones by a thread: neither gets into the other, and of each kind none overtakes."""
    with ends() as (outbox, theirs):

        def send(sender: int) -> None:
            for number in range(FRAMES):
                payload = LONG if number % 3 == 0 else SHORT
                outbox.put(frames.encode({"kind": "ran", "from": sender, "number": number}, payload))

        senders = [threading.Thread(target=send, args=(sender,), daemon=True) for sender in range(SENDERS)]
        for each in senders:
            each.start()
        found = read(theirs, SENDERS * FRAMES)
    for sender in range(SENDERS):
        mine = [(header["number"], payload) for header, payload in found if header["from"] == sender]
        short = [number for number, payload in mine if payload == SHORT]
        long = [number for number, payload in mine if payload == LONG]
        assert short == [number for number in range(FRAMES) if number % 3]
        assert long == list(range(0, FRAMES, 3))


async def test_long_frames_hold_a_runner_up_when_the_outbox_is_full() -> None:
    """While nobody reads, one is on its way and so many wait; the next takes its turn, and none is lost."""

    def put(number: int) -> None:
        outbox.put(frames.encode({"kind": "ran", "number": number}, LONG))

    with ends() as (outbox, theirs):
        for number in range(1 + OUTBOX_FRAMES):
            put(number)
        held_up = threading.Thread(target=put, args=(1 + OUTBOX_FRAMES,), daemon=True)
        held_up.start()
        until = time.monotonic() + 0.05
        await wait_until(lambda: time.monotonic() > until, "it had time to be done")
        assert held_up.is_alive()
        found = read(theirs, 2 + OUTBOX_FRAMES)
        held_up.join(LONG_S)
    assert [header["number"] for header, _ in found] == list(range(2 + OUTBOX_FRAMES))
    assert all(payload == LONG for _, payload in found)


def test_what_is_sent_at_once_is_there_when_it_returns() -> None:
    """The worker reads it even if the engine dies in the next moment."""
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            Outbox(ours).send({"kind": "begun", "keys": ["a"]})
        assert list(frames.receive(theirs)) == [({"kind": "begun", "keys": ["a"]}, b"")]


def test_an_engine_without_a_worker_ends() -> None:
    """Nobody waits for it any more."""
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(SystemExit) as ended:
        Outbox(ours).send({"kind": "begun", "keys": ["a"]})
    assert ended.value.code == 0


def test_the_vectors_of_a_batch_follow_its_frame_in_order() -> None:
    """Those of what was done, as float32 without a change; what failed has a code and no vectors."""
    vectors = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    short = vectors[1, :3]
    one, two = (Work(key, texts, 0.0, 9.0) for key, texts in (("a", ("x", "y")), ("b", ("z",))))
    one.rows[:], two.rows[:] = list(vectors), [short]
    one_said = {"tokens": [4, 3], "read_s": 0.125, "read_at": 0.5, "began": 1.0}
    two_said = {"tokens": [2], "read_s": 0.25, "read_at": 1.5, "began": 2.0}
    for entry, said in ((one, one_said), (two, two_said)):
        for name, value in said.items():
            setattr(entry, name, value)
    ran = Ran(3, 5, 30, 36, 0.5, 0.25, 0.125, done=[one, two], failed=[Failed("c", "input_failed", "It failed.")])
    [(header, payload)] = frames.Reader().feed(b"".join(reports_of(ran)))
    assert payload == vectors.tobytes() + short.tobytes()
    assert header == {
        "kind": "ran",
        "batch": header["batch"],
        "more": False,
        "size": 3,
        "inputs": 5,
        "tokens": 30,
        "padded": 36,
        "seconds": 0.5,
        "gap": 0.25,
        "busy_s": 0.125,
        "ended": 0.0,
        "behind": False,
        "full": False,
        "full_s": 0.0,
        "max_batch_tokens": 0,
        "done": [
            {"key": "a", "bytes": 32, "dim": 4, **one_said},
            {"key": "b", "bytes": 12, "dim": 3, **two_said},
        ],
        "paused": [],
        "failed": [{"key": "c", "code": "input_failed", "message": "It failed."}],
    }


def test_the_frames_of_a_batch_have_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may come between them, from another thread."""
    monkeypatch.setattr(reports, "MOST_REPORT_BYTES", 1)
    works = [Work(key, ("x",), 0.0, 9.0) for key in "abc"]
    for each in works:
        each.rows[:] = [np.zeros(4, np.float32)]
    sent = [frames.Reader().feed(b"".join(reports_of(Ran(3, done=works)))) for _ in range(2)]
    (first, *others), again = ([header["batch"] for header, _ in told] for told in sent)
    assert others == [first] * 2
    assert again == [first + 1] * 3


def test_a_batch_of_which_nothing_came_has_no_vectors() -> None:
    """Its frame says so, and is read."""
    ran = Ran(failed=[Failed("c", "input_failed", "It failed.")])
    [(header, payload)] = frames.Reader().feed(b"".join(reports_of(ran)))
    assert (header["done"], payload) == ([], b"")
