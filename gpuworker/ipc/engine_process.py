"""The worker's handle on its engine process: starts it, sends it messages, and starts it again when it dies."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict

import structlog

from gpuworker import metrics
from gpuworker.gpu.sharing import Grant
from gpuworker.ipc import framing
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.ipc.frame_protocol import FrameProtocol
from gpuworker.ipc.messages import (
    DropEntries,
    LoadFailed,
    Message,
    Ready,
    SharedMessage,
    SharedMessageRead,
    StartEngine,
)
from gpuworker.ipc.shared_memory import MIN_SHARED_BYTES, WorkerMemory
from shared.process.backoff import Backoff
from shared.process.log_text import MODEL_LOADS
from shared.process.tasks import cancel_and_wait

log = structlog.get_logger()

RESTART_PAUSE_S = 1.0
FIRST_PROGRESS_S = 5.0
MAX_PROGRESS_S = 30.0
STOP_TIMEOUT_S = 2.0
IGNORE_SIGNALS = ("/bin/sh", "-c", 'trap "" INT TERM; exec "$0" "$@"')
"""Begins a command line that is to ignore Ctrl-C (INT) and TERM from its first moment.

The shell ignores both signals and then becomes the program, which inherits that. A Python program can ignore them only
when it runs: in its first second, Ctrl-C would print a traceback of its imports, and TERM would end it.
"""


def engine_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of an engine process: the given variables, and defaults for those that are missing.

    PYTHONSAFEPATH is always set.
    """
    return {
        # One pool of threads for the cores, the model's: others would compete with it (and no thread survives a fork).
        # The backend sets that of tokenizers, which depends on the device.
        "OPENBLAS_NUM_THREADS": "1",
        # The driver, which names GPUs, and CUDA, which uses them, then number them in the same way.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        # Threads that work on one operation spin while they wait for the next one; after the batch they soon sleep.
        "GOMP_SPINCOUNT": "20000",
        # The allocator keeps a batch's memory: from the system, it would come back with page faults.
        "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
        "MALLOC_TRIM_THRESHOLD_": str(2**30),
        "MALLOC_TOP_PAD_": str(16 * 2**20),
        # oneDNN on a CPU keeps code for each shape and number of rows, a MB each: by default 1,024 times, twice.
        "LRU_CACHE_CAPACITY": "64",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
        **environment,
        "PYTHONSAFEPATH": "1",
    }


class EngineFailedError(Exception):
    """The engine reports that it cannot serve this model."""


class EngineProcess:
    """Keeps one engine alive.

    Attributes:
        ready: whether there is an engine that takes entries.
        last_message_at: when an engine last sent a message (monotonic clock).

    Args:
        options: of the engine.
        run_table: descriptor of the table in which the engine notes what it runs.
        wait_until_granted: waits until an engine may start, and returns where.
        on_message: called with each message of a living engine and its payload; not with those that are handled here
            (Ready, LoadFailed, SharedMessage, SharedMessageRead).
        on_ready: called when an engine is ready for work, with its message.
        on_death: called when an engine has died, with the number of deaths since one was last ready. Another engine
            starts after the call.
    """

    def __init__(
        self,
        options: EngineOptions,
        run_table: int,
        wait_until_granted: Callable[[], Awaitable[Grant]],
        on_message: Callable[[Message, bytes], None],
        on_ready: Callable[[Ready], None],
        on_death: Callable[[int], None],
    ) -> None:
        self._options = options
        self._run_table = run_table
        self._wait_until_granted = wait_until_granted
        self._on_message = on_message
        self._on_ready = on_ready
        self._on_death = on_death
        self._server: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._protocol: FrameProtocol | None = None
        self._shared_memory: WorkerMemory | None = None
        self._lease_end = 0.0
        self._was_ready = False
        self.last_message_at = 0.0
        self.ready = False

    async def run(self) -> None:
        """Starts engines until cancelled.

        Raises:
            EngineFailedError: the model cannot be loaded; another engine would fail in the same way.
            FrameError: the engine sent something that is no message.
        """
        deaths = 0
        while True:
            try:
                await self._run_engine()
            finally:
                self.ready, self._protocol = False, None
                self._close_shared_memory()
            metrics.ENGINE_RESTARTS.inc()
            deaths = 1 if self._was_ready else deaths + 1
            log.warning("engine died", model=self._options.model, deaths_in_a_row=deaths)
            self._on_death(deaths)
            if deaths > 1:
                await asyncio.sleep(RESTART_PAUSE_S)  # it dies while it loads: do not use up the host's CPU

    def drop(self, keys: Iterable[str]) -> None:
        """Has the engine forget entries that need not run any more."""
        self.send(DropEntries(tuple(keys)))

    def send(self, message: Message) -> None:
        """Sends a message to a ready engine. Without one, drops it: the next engine gets the entries in flight."""
        if self._protocol is None or not self.ready:
            return
        frame = framing.encode(message)
        if (
            len(frame) >= MIN_SHARED_BYTES
            and self._shared_memory is not None
            and (at := self._shared_memory.writer.put(frame)) is not None
        ):
            frame = framing.encode(SharedMessage(at, len(frame)))
        self._protocol.write(frame)

    def grant(self, until: float) -> None:
        """Allows this engine, and the next ones, to use the GPU until then (monotonic clock)."""
        self._lease_end = until
        if self._shared_memory is not None:
            self._shared_memory.writer.grant(until)

    def kill(self) -> None:
        """Has the fork server kill the engine; the next one starts as after any death."""
        if self._control is not None:
            with suppress(OSError):  # the fork server is dead, and so is its engine
                self._control.send(framing.KILL)

    async def stop(self) -> None:
        """Ends the fork server, and with it the engine. Kills the server if that takes longer than STOP_TIMEOUT_S."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._server is None:
            return
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._server.wait()
        except TimeoutError:  # it is still importing
            self._server.kill()
            await self._server.wait()

    async def _run_engine(self) -> None:
        self._was_ready = False
        await self._ensure_fork_server()  # its imports need no GPU
        grant = await self._wait_until_granted()
        self._shared_memory = _create_shared_memory()
        self.grant(self._lease_end)
        sock = await self._fork()
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        protocol = self._protocol = FrameProtocol(self._handle, loop.create_future())
        await loop.create_connection(lambda: protocol, sock=sock)
        protocol.write(framing.encode(StartEngine(grant.device, grant.lock)))
        reporting = asyncio.create_task(self._log_loading())
        try:
            await protocol.ended
        finally:
            await cancel_and_wait([reporting])
            protocol.close()

    async def _log_loading(self) -> None:
        """Logs now and then that the model still loads, ever more rarely: it may take minutes."""
        began, pause = time.monotonic(), Backoff(FIRST_PROGRESS_S, MAX_PROGRESS_S)
        while not self.ready:
            await pause.wait()
            if not self.ready:
                log.info(MODEL_LOADS, model=self._options.model, after_s=round(time.monotonic() - began))

    def _close_shared_memory(self) -> None:
        shared_memory, self._shared_memory = self._shared_memory, None
        if shared_memory is not None:
            shared_memory.close()

    async def _fork(self) -> socket.socket:
        """Has the fork server start an engine; returns the worker's end of their socket pair."""
        while True:
            control = await self._ensure_fork_server()
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    memory = [] if self._shared_memory is None else self._shared_memory.descriptors
                    socket.send_fds(control, [framing.FORK], [theirs.fileno(), self._run_table, *memory])
                except OSError:  # the fork server has just died: the next round starts another
                    ours.close()
                    control.close()
                    self._control = None
                else:
                    return ours

    def _handle(self, message: Message, payload: bytes) -> None:
        self.last_message_at = time.monotonic()
        match message:
            case LoadFailed():
                raise EngineFailedError(message.message)
            case SharedMessage() if self._shared_memory is not None:
                with self._shared_memory.reader.read(message.at, message.size) as data:
                    long_message, long_payload = framing.decode(data)
                self.send(SharedMessageRead(message.at))
                self._handle(long_message, long_payload)
            case SharedMessageRead():
                if self._shared_memory is not None:
                    self._shared_memory.writer.free(message.at)
            case Ready():
                self.ready = self._was_ready = True
                self._on_ready(message)
            case _:
                self._on_message(message, payload)

    async def _ensure_fork_server(self) -> socket.socket:
        """Returns the socket of a living fork server; starts one if there is none."""
        if self._control is not None and self._server is not None and self._server.returncode is None:
            return self._control
        if self._control is not None:
            self._control.close()
        ours, theirs = socket.socketpair()
        arguments: list[str] = [str(theirs.fileno()), json.dumps(asdict(self._options))]
        self._server = await asyncio.create_subprocess_exec(
            *IGNORE_SIGNALS,
            sys.executable,
            "-P",
            "-m",
            "gpuworker.engine.forkserver",
            *arguments,
            pass_fds=[theirs.fileno()],
            stdin=asyncio.subprocess.DEVNULL,
            env=engine_environment(os.environ),
        )
        theirs.close()
        self._control = ours
        return ours


def _create_shared_memory() -> WorkerMemory | None:
    """Returns memory to share with an engine; None if the system has none: then all messages go through the socket."""
    try:
        return WorkerMemory()
    except OSError as error:
        log.debug("no shared memory", reason=str(error))
        return None
