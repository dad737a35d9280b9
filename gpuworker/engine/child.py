"""The engine's main program: frames in, the pipeline, frames out, over one socket."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, cast

from setproctitle import setproctitle

from gpuworker import frames
from gpuworker.arena import Window
from gpuworker.backends.base import Backend, load_backend
from gpuworker.batching import Limits
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.tenure import Presence
from gpuworker.engine.turns import Turn
from gpuworker.engine.work import Failed, Ran, Told, Work
from gpuworker.engine_options import EngineOptions
from gpuworker.models import ModelError, parse_model
from shared.errors import InputFailed
from shared.messages import EMBED_ALL, PLAIN, PREDICT, Options

if TYPE_CHECKING:
    from gpuworker.arena import Window
from gpuworker.backends.base import Vector

_OUTBOX_FRAMES = 64
"""Frames that may wait to be sent. A worker that does not read holds its engine up, rather than fill its memory."""


SWITCH_S = 0.0005
"""Python's own 5 ms are as long as a batch: whoever holds the interpreter's lock, for some work on text, would hold up
the thread whose batch has ended."""

MOST_VALUES_BYTES = 32 * 2**20
"""Of the outputs of an entry: a reply has to pass through Redis, and one that is too long would never be read."""

TOO_LONG = f"The outputs for some of these inputs take {{}} MiB, over the limit of {MOST_VALUES_BYTES >> 20}."

_SHORT_BYTES = 64 * 2**10
"""A socket takes as much at once, unless its reader is late; then a runner waits as long as the outbox would."""


def serve(sock: socket.socket, options: EngineOptions, window: Window | None) -> None:
    """Loads the model and serves until the worker closes the socket. Large frames stand in the `window`."""
    setproctitle(f"redbatch engine {options.model}")
    threading.excepthook = _die
    sys.setswitchinterval(SWITCH_S)
    outbox, received = Outbox(sock), frames.receive(sock)
    start = next(received, None)
    if start is None:
        return
    presence = Presence(options, start[0], outbox.send)
    try:
        backend = load_backend(parse_model(options.model), replace(options, device=start[0]["device"]))
        backend.warmup()
    except ModelError as error:
        outbox.send({"kind": "failed", "message": str(error)})
        return
    pipeline, ready = _built(options, backend, outbox, presence.turn)
    pipeline.start()
    threading.Thread(target=outbox.run, name="send", daemon=True).start()
    outbox.send(ready)
    for header, _ in received:
        if header["kind"] == "shared" and window is not None:
            large = frames.unpacked(window.read(header["at"], header["size"]))
            outbox.send({"kind": "read", "at": header["at"]})
            _take(large, pipeline, outbox)
        elif not presence.take(header):
            _take(header, pipeline, outbox)


def _built(options: EngineOptions, backend: Backend, outbox: Outbox, turn: Turn) -> tuple[Pipeline, frames.Header]:
    """Returns the pipeline of a loaded model, and what is told of it."""
    max_tokens = options.max_batch_tokens or backend.max_batch_tokens
    limits = Limits(
        options.max_batch_size,
        max_tokens,
        None if options.max_batch_wait_ms == "auto" else options.max_batch_wait_ms / 1000,
        options.batch_age_bound_ms / 1000,
        packed=backend.packs,
        bulk_share=options.bulk_share,
        bulk_age_bound_s=options.bulk_age_bound_ms / 1000,
        bulk_stretch=options.bulk_stretch,
    )
    told = Told(
        begun=lambda keys: outbox.send({"kind": "begun", "keys": keys}),
        ran=lambda ran: outbox.put(encode_ran(ran)),
        settle=outbox.flush,
    )
    ready = {"kind": "ready", "model": options.model, "dim": backend.dim, "device": backend.device}
    about = {name: getattr(backend, name) for name in ("revision", "commit", "dtype", "pooling", "max_input_tokens")}
    return Pipeline(backend, limits, told, turn), ready | about | {"max_batch_tokens": max_tokens}


class Outbox:
    """Frames on their way to the worker. A thread sends long ones, so that the runner that made one need not wait.

    A worker that reads late holds runners up all the same: one with a short frame until the long one that is on its way
    is through, one with a long frame when 64 of them wait. Short ones may overtake long ones.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._turn = threading.Lock()
        self._waiting: queue.Queue[bytes] = queue.Queue(_OUTBOX_FRAMES)

    def put(self, frame: bytes) -> None:
        """Sends a frame soon, or now if it is short."""
        if len(frame) <= _SHORT_BYTES:
            self._write(frame)
        else:
            self._waiting.put(frame)

    def flush(self) -> None:
        """Returns when all that was put is sent."""
        self._waiting.join()

    def send(self, header: frames.Header) -> None:
        """Sends a frame before it returns: the worker reads it even if this process dies in the next moment."""
        self._write(frames.encode(header))

    def run(self) -> None:
        """Sends what was put, for ever."""
        while True:
            self._write(self._waiting.get())
            self._waiting.task_done()

    def _write(self, frame: bytes) -> None:
        try:
            with self._turn:
                self._sock.sendall(frame)
        except OSError:
            os._exit(0)  # the worker is gone, and with it everybody who waits for this engine


def encode_ran(ran: Ran) -> bytes:
    """Returns the frame that says what a batch gave."""
    done: list[dict[str, object]] = []
    pieces: list[bytes] = []
    failed = list(ran.failed)
    for work in ran.done:
        told, piece = _result(work)
        if work.op == PREDICT and len(piece) > MOST_VALUES_BYTES:
            failed.append(Failed(work.key, InputFailed.code, TOO_LONG.format(len(piece) >> 20)))
            continue
        done.append(told)
        pieces.append(piece)
    header = {
        "kind": "ran",
        "size": ran.size,
        "inputs": ran.inputs,
        "tokens": ran.tokens,
        "padded": ran.padded,
        "seconds": ran.seconds,
        "gap": ran.gap,
        "ended": ran.ended,
        "behind": ran.behind,
        "full": ran.full,
        "full_s": ran.full_s,
        "max_batch_tokens": ran.max_tokens,
        "done": done,
        "paused": ran.paused,
        "failed": [asdict(failure) for failure in failed],
    }
    return frames.encode(header, b"".join(pieces))


def _result(work: Work) -> tuple[dict[str, object], bytes]:
    """Returns what is said of an entry that is done, and what it gave."""
    told: dict[str, object] = {
        "key": work.key,
        "tokens": work.tokens,
        "read_s": work.read_s,
        "began": work.began,
    }
    if work.values is not None:
        given = frames.pack(work.values)
    elif work.op == PREDICT:
        given = frames.pack(cast("list[bytes]", work.rows))
    else:
        rows = cast("list[Vector]", work.rows)
        told["dim"] = rows[0].shape[-1]
        if work.op == EMBED_ALL:
            told["counts"] = [len(row) for row in rows]
        given = rows[0].tobytes() if len(rows) == 1 else b"".join([row.tobytes() for row in rows])
    told["bytes"] = len(given)
    return told, given


def _take(header: frames.Header, pipeline: Pipeline, outbox: Outbox) -> None:
    kind = header["kind"]
    if kind == "add":
        pipeline.add(
            Work(
                each["key"],
                each["inputs"],
                each["since"],
                each["deadline"],
                each["attempts"],
                each["bulk"],
                Options(*each["options"]) if each["options"] else PLAIN,
                each["op"],
            )
            for each in header["entries"]
        )
    elif kind == "drop":
        pipeline.drop(header["keys"])
    elif kind == "drain":
        outbox.send({"kind": "unbegun", "keys": pipeline.drain()})


def _die(hook: threading.ExceptHookArgs) -> None:
    """Half a pipeline is worse than none: a new engine runs what this one held."""
    sys.excepthook(hook.exc_type, hook.exc_value or hook.exc_type(), hook.exc_traceback)
    sys.stderr.flush()
    os._exit(1)
