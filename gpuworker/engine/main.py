"""The engine's main program: frames in, the pipeline, frames out, over one socket."""

from __future__ import annotations

import os
import socket
import sys
import threading
from dataclasses import replace

from setproctitle import setproctitle

from gpuworker.backends.base import Backend
from gpuworker.backends.load import load_backend
from gpuworker.engine.gpu_session import GpuSession
from gpuworker.engine.gpu_turn import UNSHARED, GpuTurn
from gpuworker.engine.inbox import Inbox
from gpuworker.engine.outbox import Outbox
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.result_frames import reports_of
from gpuworker.engine.work import BatchResult, PipelineCallbacks
from gpuworker.ipc import frames
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.ipc.messages import EntriesStarted, FrameError, LoadFailed, Ready, StartEngine
from gpuworker.ipc.shared_memory import SharedMemoryReader
from gpuworker.models import ModelLoadError, parse_model
from gpuworker.policy.limits import Limits

SWITCH_S = 0.0005
"""Python's own 5 ms are as long as a batch: whoever holds the interpreter's lock, for some work on text, would hold up
the thread whose batch has ended."""


def serve(sock: socket.socket, options: EngineOptions, window: SharedMemoryReader | None) -> None:
    """Loads the model and serves until the worker closes the socket. Large frames stand in the `window`."""
    setproctitle(f"redbatch engine {options.model}")
    threading.excepthook = _die
    sys.setswitchinterval(SWITCH_S)
    outbox, received = Outbox(sock), frames.receive(sock)
    start, _ = next(received, (None, b""))
    if start is None:
        return
    if not isinstance(start, StartEngine):
        raise FrameError(f"the first message is {type(start).__name__}, not StartEngine")
    options = replace(options, device=start.device, runners=1 if options.gpu_lease == "batch" else options.runners)
    try:
        presence = GpuSession(options, start.lock, window, outbox.send)
        backend = load_backend(parse_model(options.model), options)
        backend.warmup()
    except ModelLoadError as error:
        outbox.send(LoadFailed(str(error)))
        return
    pipeline, ready = _built(options, backend, outbox, presence.turn)
    pipeline.start()
    threading.Thread(target=outbox.run, name="send", daemon=True).start()
    outbox.send(ready)
    inbox = Inbox(pipeline, outbox, window)
    take = inbox.take if presence.turn is UNSHARED else inbox.beside()
    for message, _ in received:
        if not presence.take(message):
            take(message)


def _built(options: EngineOptions, backend: Backend, outbox: Outbox, turn: GpuTurn) -> tuple[Pipeline, Ready]:
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

    def ran(what: BatchResult) -> None:
        for frame in reports_of(what):
            outbox.put(frame)

    told = PipelineCallbacks(
        begun=lambda keys: outbox.send(EntriesStarted(keys)),
        ran=ran,
        settle=outbox.flush,
    )
    ready = Ready(
        options.model,
        backend.dim,
        backend.device,
        backend.revision,
        backend.commit,
        backend.dtype,
        backend.pooling,
        backend.max_input_tokens,
        max_tokens,
    )
    return Pipeline(backend, limits, told, turn), ready


def _die(hook: threading.ExceptHookArgs) -> None:
    """Half a pipeline is worse than none: a new engine runs what this one held."""
    sys.excepthook(hook.exc_type, hook.exc_value or hook.exc_type(), hook.exc_traceback)
    sys.stderr.flush()
    os._exit(1)
