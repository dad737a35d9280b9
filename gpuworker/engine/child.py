"""The engine's main program: frames in, the pipeline, frames out, over one socket."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
from dataclasses import asdict
from typing import BinaryIO

import numpy as np
from setproctitle import setproctitle

from gpuworker import frames
from gpuworker.backends.base import load_backend
from gpuworker.batching import Limits
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.work import Ran, Work
from gpuworker.engine_options import EngineOptions
from gpuworker.models import ModelError, parse_model

_OUTBOX_FRAMES = 64
"""Frames that may wait to be sent. A worker that does not read holds its engine up, rather than fill its memory."""


def serve(sock: socket.socket, options: EngineOptions) -> None:
    """Loads the model and serves until the worker closes the socket."""
    setproctitle(f"redbatch engine {options.model}")
    threading.excepthook = _die
    outbox: queue.Queue[bytes] = queue.Queue(_OUTBOX_FRAMES)
    try:
        backend = load_backend(parse_model(options.model), options.device)
        backend.warmup()
    except ModelError as error:
        sock.sendall(frames.encode({"kind": "failed", "message": str(error)}))
        return
    max_tokens = options.max_batch_tokens or backend.max_batch_tokens
    limits = Limits(
        options.max_batch_size, max_tokens, options.max_batch_wait_ms / 1000, options.batch_age_bound_ms / 1000
    )
    pipeline = Pipeline(
        backend,
        limits,
        begun=lambda keys: outbox.put(frames.encode({"kind": "begun", "keys": keys})),
        ran=lambda ran: outbox.put(encode_ran(ran, backend.dim)),
    )
    pipeline.start()
    threading.Thread(target=_send, args=(sock, outbox), name="send", daemon=True).start()
    ready = {"kind": "ready", "pid": os.getpid(), "model": options.model, "dim": backend.dim, "device": backend.device}
    outbox.put(frames.encode(ready | {"max_batch_tokens": max_tokens}))
    with sock.makefile("rb") as stream:
        _receive(stream, pipeline, outbox)


def encode_ran(ran: Ran, dim: int) -> bytes:
    """Returns the frame that says what a batch gave."""
    header = {
        "kind": "ran",
        "size": ran.size,
        "tokens": ran.tokens,
        "padded": ran.padded,
        "seconds": ran.seconds,
        "gap": ran.gap,
        "dim": dim,
        "done": [
            {"key": work.key, "n": len(work.texts), "began": work.began, "seconds": work.seconds, "size": work.size}
            for work in ran.done
        ],
        "failed": [asdict(failure) for failure in ran.failed],
    }
    rows = [row for work in ran.done for row in work.rows if row is not None]
    payload = np.asarray(rows, dtype="<f4").tobytes() if rows else b""
    return frames.encode(header, payload)


def _receive(stream: BinaryIO, pipeline: Pipeline, outbox: queue.Queue[bytes]) -> None:
    while (frame := frames.read(stream)) is not None:
        header, _ = frame
        kind = header["kind"]
        if kind == "add":
            pipeline.add(
                Work(each["key"], each["inputs"], each["since"], each["deadline"], each["alone"])
                for each in header["entries"]
            )
        elif kind == "drop":
            pipeline.drop(header["keys"])
        elif kind == "drain":
            outbox.put(frames.encode({"kind": "unbegun", "keys": pipeline.drain()}))


def _die(hook: threading.ExceptHookArgs) -> None:
    """Half a pipeline is worse than none: a new engine runs what this one held."""
    sys.excepthook(hook.exc_type, hook.exc_value or hook.exc_type(), hook.exc_traceback)
    sys.stderr.flush()
    os._exit(1)


def _send(sock: socket.socket, outbox: queue.Queue[bytes]) -> None:
    try:
        while True:
            sock.sendall(outbox.get())
    except OSError:
        os._exit(0)  # the worker is gone, and with it everybody who waits for this engine
