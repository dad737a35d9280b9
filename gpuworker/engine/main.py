"""The engine's main program: frames in, the pipeline, frames out, over one socket."""

from __future__ import annotations

import os
import socket
import sys
import threading
from dataclasses import replace

from setproctitle import setproctitle

from gpuworker.ipc import frames
from gpuworker.ipc.shared_memory import Window
from gpuworker.backends.base import Backend, load_backend
from gpuworker.policy.batching import Limits
from gpuworker.engine.inbox import Inbox
from gpuworker.engine.outbox import Outbox
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.gpu_session import Presence
from gpuworker.engine.result_frames import reports_of
from gpuworker.engine.gpu_turn import OWN, Turn
from gpuworker.engine.work import Ran, Told
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.models import ModelError, parse_model

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
    inbox = Inbox(pipeline, outbox, window)
    take = inbox.take if presence.turn is OWN else inbox.beside()
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


def _die(hook: threading.ExceptHookArgs) -> None:
    """Half a pipeline is worse than none: a new engine runs what this one held."""
    sys.excepthook(hook.exc_type, hook.exc_value or hook.exc_type(), hook.exc_traceback)
    sys.stderr.flush()
    os._exit(1)
