"""The engine's main program: messages in, the pipeline, messages out, over one socket."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

from setproctitle import setproctitle

from gpuworker.backends.base import Backend
from gpuworker.backends.int8_ranges import load_ranges, with_ranges
from gpuworker.backends.selection import load_backend
from gpuworker.engine.gpu_session import GpuSession
from gpuworker.engine.gpu_turn import UNSHARED, GpuTurn
from gpuworker.engine.inbox import Inbox
from gpuworker.engine.model_errors import ErrorOptions
from gpuworker.engine.outbox import Outbox
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.result_frames import encode_result
from gpuworker.engine.work import BatchResult, Reports
from gpuworker.gpu.devices import show_mig_device
from gpuworker.ipc import framing
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.ipc.messages import FrameError, LoadFailed, Ready, StartEngine
from gpuworker.ipc.run_table import RunTable
from gpuworker.ipc.shared_memory import SharedMemoryReader, SharedMemoryWriter
from gpuworker.model_spec import ModelLoadError, parse_model
from gpuworker.policy.limits import OVERHEAD_TOKENS, Limits, parse_sizes
from gpuworker.policy.retries import RetryLimits
from shared.long_entries import min_long_tokens
from shared.messages import OPS

SWITCH_INTERVAL_S = 0.0005
"""Python's default of 5 ms is as long as a batch: a thread that holds the interpreter's lock, for some work on text,
would delay the thread whose batch has ended."""


def serve(
    sock: socket.socket,
    options: EngineOptions,
    runs: RunTable,
    shared_memory: SharedMemoryReader | None,
    result_memory: SharedMemoryWriter | None,
) -> None:
    """Loads the model and serves until the worker closes the socket. Long messages and results are in shared memory.

    Raises:
        FrameError: the worker sent something that is no frame, or a first message other than StartEngine.
    """
    setproctitle(f"redbatch engine {options.model}")
    threading.excepthook = _die
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    outbox, received = Outbox(sock, result_memory), framing.receive(sock)
    start, _ = next(received, (None, b""))
    if start is None:
        return
    if not isinstance(start, StartEngine):
        raise FrameError(f"the first message is {type(start).__name__}, not StartEngine")
    runners = 1 if options.gpu_lease == "batch" else options.runners
    try:
        options = replace(options, device=show_mig_device(start.device, os.environ), runners=runners)
        session = GpuSession(options, start.lock, shared_memory, outbox.send)
        backend = load_backend(parse_model(options.model, options.model_revision), options)
        ranges = load_ranges(options.int8_ranges, backend)
        backend.warmup()
    except ModelLoadError as error:
        outbox.send(LoadFailed(str(error)))
        return
    pipeline, ready = _create_pipeline(options, backend, _device(options, backend, start), outbox, runs, session.turn)
    pipeline.start()
    threading.Thread(target=outbox.run, name="send", daemon=True).start()
    outbox.send(with_ranges(ready, ranges))
    inbox = Inbox(pipeline, outbox, shared_memory)
    handle = inbox.handle if session.turn is UNSHARED else inbox.start_thread()
    for message, _ in received:
        if not session.handle(message):
            handle(message)


def _device(options: EngineOptions, backend: Backend, start: StartEngine) -> str:
    """Returns the name that the worker has for the device: this process may have another number for a MIG device."""
    return backend.device if options.device == start.device else start.device


def _limits(options: EngineOptions, backend: Backend) -> Limits:
    """Returns the limits of a batch of a loaded model."""
    max_batch_tokens = options.max_batch_tokens or backend.max_batch_tokens
    preferred_sizes = parse_sizes(options.preferred_batch_sizes)
    return Limits(
        max(preferred_sizes, default=options.max_batch_size),
        max_batch_tokens,
        None if options.max_batch_wait_ms == "auto" else options.max_batch_wait_ms / 1000,
        options.batch_age_bound_ms / 1000,
        overhead_tokens=OVERHEAD_TOKENS if backend.splits_batches else max_batch_tokens,
        packed=backend.packs,
        bulk_share=options.bulk_share,
        bulk_age_bound_s=options.bulk_age_bound_ms / 1000,
        bulk_stretch=options.bulk_stretch,
        min_long_tokens=min_long_tokens(max_batch_tokens),
        preferred_sizes=preferred_sizes,
    )


def _create_pipeline(
    options: EngineOptions, backend: Backend, device: str, outbox: Outbox, runs: RunTable, turn: GpuTurn
) -> tuple[Pipeline, Ready]:
    """Returns the pipeline of a loaded model, and the message that describes the model and its device."""
    limits = _limits(options, backend)

    def send_result(result: BatchResult, on_sent: Callable[[], None]) -> None:
        is_queued = False
        for frame in encode_result(result):
            is_queued |= outbox.put(frame)
        if is_queued:
            outbox.call_later(on_sent)
        else:
            on_sent()

    ready = Ready(
        options.model,
        backend.dim,
        device,
        backend.revision,
        backend.commit,
        backend.dtype,
        backend.pooling,
        backend.max_input_tokens,
        limits.max_tokens,
        backend.packs,
        tuple(backend.prompts),
        backend.normalizes,
        tuple(backend.empty_prompts),
        tuple(each for each in OPS if each in backend.ops),
        tuple(backend.labels),
        backend.activation,
        pid=os.getpid(),
    )
    error_options = ErrorOptions(
        options.error_messages, RetryLimits(options.max_retries, options.retry_backoff_ms / 1000)
    )
    return Pipeline(backend, limits, Reports(send_result, runs, outbox.flush), turn, error_options), ready


def _die(hook: threading.ExceptHookArgs) -> None:
    """Ends the process when a thread fails. Half a pipeline is worse than none: a new engine runs its entries."""
    sys.excepthook(hook.exc_type, hook.exc_value or hook.exc_type(), hook.exc_traceback)
    os._exit(1)
