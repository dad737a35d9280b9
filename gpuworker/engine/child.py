"""The engine's main program: frames in, the pipeline, frames out, over one socket."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from setproctitle import setproctitle

from gpuworker import frames
from gpuworker.arena import Window
from gpuworker.backends.base import Backend, load_backend
from gpuworker.batching import Limits
from gpuworker.engine.outbox import Outbox
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.presence import Presence
from gpuworker.engine.reports import reports_of
from gpuworker.engine.turns import OWN, Turn
from gpuworker.engine.work import Ran, Told, Work
from gpuworker.engine_options import EngineOptions
from gpuworker.models import ModelError, parse_model
from shared.messages import PLAIN, Options

SWITCH_S = 0.0005
"""Python's own 5 ms are as long as a batch: whoever holds the interpreter's lock, for some work on text, would hold up
the thread whose batch has ended."""


def serve(sock: socket.socket, options: EngineOptions, window: Window | None) -> None:
    """Loads the model and serves until the worker closes the socket. Large frames stand in the `window`."""
    setproctitle(f"redbatch engine {options.model}")
    threading.excepthook = _die
    sys.setswitchinterval(SWITCH_S)
    outbox, received = Outbox(sock), frames.receive(sock)
    start = next(received, None)
    if start is None:
        return
    device = start[0]["device"]
    options = replace(options, device=device, runners=1 if options.gpu_lease == "batch" else options.runners)
    try:
        presence = Presence(options, start[0]["lock"], window, outbox.send)
        backend = load_backend(parse_model(options.model), options)
        backend.warmup()
    except ModelError as error:
        outbox.send({"kind": "failed", "message": str(error)})
        return
    pipeline, ready = _built(options, backend, outbox, presence.turn)
    pipeline.start()
    threading.Thread(target=outbox.run, name="send", daemon=True).start()
    outbox.send(ready)
    intake = Intake(pipeline, outbox, window)
    take = intake.take if presence.turn is OWN else intake.beside()
    for header, _ in received:
        if not presence.take(header):
            take(header)


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

    def ran(what: Ran) -> None:
        for frame in reports_of(what):
            outbox.put(frame)

    told = Told(
        begun=lambda keys: outbox.send({"kind": "begun", "keys": keys}),
        ran=ran,
        settle=outbox.flush,
    )
    ready = {"kind": "ready", "model": options.model, "dim": backend.dim, "device": backend.device}
    about = {name: getattr(backend, name) for name in ("revision", "commit", "dtype", "pooling", "max_input_tokens")}
    return Pipeline(backend, limits, told, turn), ready | about | {"max_batch_tokens": max_tokens}


class Intake:
    """Takes in what the worker sends, but for what is about the GPU."""

    def __init__(self, pipeline: Pipeline, outbox: Outbox, window: Window | None) -> None:
        self._pipeline = pipeline
        self._outbox = outbox
        self._window = window
        self._waiting: SimpleQueue[frames.Header] = SimpleQueue()

    def beside(self) -> Callable[[frames.Header], None]:
        """Returns what takes a frame in later, in a thread: a turn should not wait for texts to be tokenized."""
        threading.Thread(target=self._run, name="intake", daemon=True).start()
        return self._waiting.put

    def take(self, header: frames.Header) -> None:
        """Takes in a frame: returns when what came with it is tokenized."""
        kind = header["kind"]
        if kind == "shared" and self._window is not None:
            large = frames.unpacked(self._window.read(header["at"], header["size"]))
            self._outbox.send({"kind": "read", "at": header["at"]})
            self.take(large)
        elif kind == "add":
            self._pipeline.add(map(_work, header["entries"]))
        elif kind == "drop":
            self._pipeline.drop(header["keys"])
        elif kind == "drain":
            self._outbox.send({"kind": "unbegun", "keys": self._pipeline.drain()})

    def _run(self) -> None:
        while True:
            self.take(self._waiting.get())


def _work(entry: dict[str, Any]) -> Work:
    """Returns an entry as the pipeline has it."""
    return Work(
        entry["key"],
        entry["inputs"],
        entry["since"],
        entry["deadline"],
        entry["attempts"],
        entry["bulk"],
        Options(*entry["options"]) if entry["options"] else PLAIN,
        entry["op"],
    )


def _die(hook: threading.ExceptHookArgs) -> None:
    """Half a pipeline is worse than none: a new engine runs what this one held."""
    sys.excepthook(hook.exc_type, hook.exc_value or hook.exc_type(), hook.exc_traceback)
    sys.stderr.flush()
    os._exit(1)
