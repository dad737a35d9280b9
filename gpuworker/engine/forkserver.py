"""A process that has imported the libraries of engines and initialized nothing, and forks engines on request.

An engine that starts from here is ready in about a second; importing torch and related libraries alone takes three to
five. This process never touches CUDA, so a fork shares no context. The worker sends commands over one socket:

    the byte FORK, and as ancillary file descriptors the engine's end of a socket pair, the run table, and the memories
    for frames if there are any (first the one that the engine reads): an engine is forked
    the byte KILL: its engines are killed
    the end of the stream: the server ends and, with it, its engines

Started as `python -P -m gpuworker.engine.forkserver FD OPTIONS`, with the options as JSON, and with SIGINT and SIGTERM
ignored: the worker ends it, after its engine.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import structlog
from setproctitle import setproctitle

from gpuworker.engine.deferred_import import defer_import
from gpuworker.engine.main import serve
from gpuworker.ipc import framing
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.ipc.run_table import RunTable
from gpuworker.ipc.shared_memory import SharedMemoryReader, SharedMemoryWriter
from gpuworker.model_spec import parse_model
from shared.process.logs import configure_logging, log_uncaught_exceptions
from shared.process.parent_death import die_with_parent

log = structlog.get_logger()

DEFERRED_MODULE = "sklearn.metrics"
"""sentence-transformers imports a function of it, to compare sparse vectors. It imports scipy.stats: a fifth of all."""

COMPILED_CODE = "TORCHINDUCTOR_CACHE_DIR"
"""The variable with the folder for code that torch compiles; torch sets it, if it is not set, as it is imported."""


def main(arguments: list[str]) -> NoReturn:
    """Forks engines until the worker closes the socket, and ends this process."""
    die_with_parent(signal.SIGKILL)
    control = socket.socket(fileno=int(arguments[0]))
    options = EngineOptions(**json.loads(arguments[1]))
    configure_logging("engine", options.log_level, options.log_format)
    log_uncaught_exceptions()
    setproctitle(f"redbatch forkserver {options.model}")
    began = time.monotonic()
    import_modules(parse_model(options.model).preload)
    log.debug("libraries imported", took_s=round(time.monotonic() - began, 2))
    wake_read, wake_write = socket.socketpair()
    wake_write.setblocking(False)
    signal.set_wakeup_fd(wake_write.fileno())
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    _serve(control, wake_read, options)
    sys.stderr.flush()
    os._exit(0)  # Python would finalize torch for up to seconds, and nothing here needs it


def import_modules(names: Sequence[str]) -> None:
    """Imports modules, and removes the empty folder that torch makes for compiled code among the temporary files.

    If torch compiles anything later, it makes the folder again. No garbage is collected before the end of the imports,
    and what is there then never: scans of what stays would take a fifth of the time, and engines share its memory.
    """
    is_set_by_user = COMPILED_CODE in os.environ
    gc.disable()
    try:
        with defer_import(DEFERRED_MODULE):
            _import(names)
    except ImportError:  # another version of a library imports more of it
        _import(names)
    gc.freeze()
    gc.enable()
    if COMPILED_CODE in os.environ and not is_set_by_user:
        with suppress(OSError):  # it is not empty
            Path(os.environ[COMPILED_CODE]).rmdir()


def _import(names: Iterable[str]) -> None:
    for name in names:
        importlib.import_module(name)


def _serve(control: socket.socket, wake: socket.socket, options: EngineOptions) -> None:
    engines: set[int] = set()
    while True:
        readable, _, _ = select.select([control, wake], [], [])
        if wake in readable:
            wake.recv(4096)
            engines -= _reap()
        if control in readable:
            data, descriptors, _, _ = socket.recv_fds(control, 1, 4)
            if not data:
                break
            if data == framing.KILL:
                _kill(engines)
                engines = set()
            else:
                engines.add(_fork(control, descriptors, options))
    _kill(engines)


def _kill(engines: set[int]) -> None:
    for pid in engines:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork(control: socket.socket, descriptors: list[int], options: EngineOptions) -> int:
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        return pid
    status = 1
    try:
        die_with_parent(signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        shared_memory = result_memory = None
        if len(descriptors) > 2:  # noqa: PLR2004
            shared_memory, result_memory = SharedMemoryReader(descriptors[2]), SharedMemoryWriter(descriptors[3])
        engine_socket = socket.socket(fileno=descriptors[0])
        os.register_at_fork(after_in_child=lambda: _disown(engine_socket))
        serve(engine_socket, options, RunTable(descriptors[1]), shared_memory, result_memory)
        status = 0
    except (Exception, SystemExit):  # the latter by a user's class
        log.exception("engine failed")  # the last frame of this process
    finally:
        sys.stderr.flush()
        os._exit(status)


def _disown(engine_socket: socket.socket) -> None:
    """Runs in a process that a model forks. It is no engine: with the socket open, a dead engine would seem to live."""
    engine_socket.close()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _reap() -> set[int]:
    """Returns the process ids of engines that have ended."""
    ended: set[int] = set()
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.add(pid)
        code = os.waitstatus_to_exitcode(status)
        log.log(logging.INFO if code else logging.DEBUG, "engine ended", pid=pid, status=code)


if __name__ == "__main__":
    main(sys.argv[1:])
