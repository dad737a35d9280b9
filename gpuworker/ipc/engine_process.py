"""The worker's side of its engine: starts it, talks to it, and starts it again when it dies."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import cast

import structlog

from gpuworker import metrics
from gpuworker.ipc import frames
from gpuworker.ipc.shared_memory import LARGE_BYTES, Arena
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.gpu.sharing import Grant
from shared.process.tasks import end

log = structlog.get_logger()

RESTART_PAUSE_S = 1.0
PROGRESS_S = 5.0
STOP_S = 2.0


def engine_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of an engine's process: those that are given, and what they leave open."""
    return {
        # One pool of threads for the cores, the model's: others would fight it (and threads do not survive a fork).
        "TOKENIZERS_PARALLELISM": "false",
        "OPENBLAS_NUM_THREADS": "1",
        # Both the driver, which names GPUs, and CUDA, which uses them, number them alike.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        # Cores that work on one operation spin for each other between two; after the batch they soon sleep.
        "GOMP_SPINCOUNT": "20000",
        # A batch's memory goes back to the allocator, not to the system, which would hand it out as page faults.
        "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
        "MALLOC_TRIM_THRESHOLD_": str(2**30),
        "MALLOC_TOP_PAD_": str(16 * 2**20),
        **given,
        "PYTHONSAFEPATH": "1",
    }


class EngineFailed(Exception):
    """The engine says that it cannot serve this model."""


class EngineHost:
    """Keeps one engine alive.

    Attributes:
        ready: whether there is one that takes work.
        heard: when one last said something (monotonic clock).

    Args:
        options: what the engine is told.
        granted: waits until an engine may start, and says where.
        on_frame: called with each frame of a living engine but ready and failed.
        on_ready: called when an engine is ready for work, with its ready frame.
        on_death: called when an engine has died, with the number of deaths since one was last ready; another is
            started after it.
    """

    def __init__(
        self,
        options: EngineOptions,
        granted: Callable[[], Awaitable[Grant]],
        on_frame: Callable[[frames.Header, bytes], None],
        on_ready: Callable[[frames.Header], None],
        on_death: Callable[[int], None],
    ) -> None:
        self._options = options
        self._granted = granted
        self._on_frame = on_frame
        self._on_ready = on_ready
        self._on_death = on_death
        self._server: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._frames: _FrameProtocol | None = None
        self._arena: Arena | None = None
        self._until = 0.0
        self._was_ready = False
        self.heard = 0.0
        self.ready = False

    async def run(self) -> None:
        """Starts engines until cancelled.

        Raises:
            EngineFailed: the model cannot be loaded; starting another would not help.
        """
        deaths = 0
        while True:
            try:
                await self._one_engine()
            finally:
                self.ready, self._frames = False, None
                self._close_arena()
            metrics.ENGINE_RESTARTS.inc()
            deaths = 1 if self._was_ready else deaths + 1
            log.warning("engine died", model=self._options.model, deaths_in_a_row=deaths)
            self._on_death(deaths)
            if deaths > 1:
                await asyncio.sleep(RESTART_PAUSE_S)  # it dies while it loads: do not burn the host

    def send(self, header: frames.Header) -> None:
        """Sends a frame to a ready engine; without one, nothing: what is held is sent when the next is ready."""
        if self._frames is None or not self.ready:
            return
        packed = frames.packed(header)
        if len(packed) >= LARGE_BYTES and self._arena is not None and (at := self._arena.put(packed)) is not None:
            packed = frames.packed({"kind": "shared", "at": at, "size": len(packed)})
        self._frames.write(frames.framed(packed))

    def grant(self, until: float) -> None:
        """Has this engine, and the next ones, use the GPU until then."""
        self._until = until
        if self._arena is not None:
            self._arena.grant(until)

    def kill(self) -> None:
        """Has the fork server kill the engine; the next one is started as after any death."""
        if self._control is not None:
            with suppress(OSError):  # the fork server is dead, and so is its engine
                self._control.send(frames.KILL)

    async def stop(self) -> None:
        """Ends the fork server, and with it the engine."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._server is None:
            return
        try:
            async with asyncio.timeout(STOP_S):
                await self._server.wait()
        except TimeoutError:  # it is still importing
            self._server.kill()
            await self._server.wait()

    async def _one_engine(self) -> None:
        self._was_ready = False
        await self._fork_server()  # its imports need no GPU
        grant = await self._granted()
        self._arena = _arena()
        self.grant(self._until)
        ours = await self._fork()
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        protocol = self._frames = _FrameProtocol(self._handle, loop.create_future())
        await loop.create_connection(lambda: protocol, sock=ours)
        protocol.write(frames.encode({"kind": "start", "device": grant.device, "lock": grant.lock}))
        telling = asyncio.create_task(self._tell_loading())
        try:
            await protocol.ended
        finally:
            await end([telling])
            protocol.close()

    async def _tell_loading(self) -> None:
        """Says from time to time that the model still loads."""
        began = time.monotonic()
        while not self.ready:
            await asyncio.sleep(PROGRESS_S)
            if not self.ready:
                log.info("the model loads", model=self._options.model, after_s=round(time.monotonic() - began))

    def _close_arena(self) -> None:
        arena, self._arena = self._arena, None
        if arena is not None:
            arena.close()

    async def _fork(self) -> socket.socket:
        """Has the fork server start an engine; returns this side of their socket pair."""
        while True:
            control = await self._fork_server()
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    shared = [] if self._arena is None else [self._arena.descriptor]
                    socket.send_fds(control, [frames.FORK], [theirs.fileno(), *shared])
                except OSError:  # the fork server died a moment ago: the next round starts another
                    ours.close()
                    control.close()
                    self._control = None
                else:
                    return ours

    def _handle(self, header: frames.Header, payload: bytes) -> None:
        self.heard = time.monotonic()
        kind = header["kind"]
        if kind == "failed":
            raise EngineFailed(str(header["message"]))
        if kind == "read":
            if self._arena is not None:
                self._arena.free(header["at"])
        elif kind == "ready":
            self.ready = self._was_ready = True
            self._on_ready(header)
        else:
            self._on_frame(header, payload)

    async def _fork_server(self) -> socket.socket:
        """Returns the socket of a living fork server, started now if there is none."""
        if self._control is not None and self._server is not None and self._server.returncode is None:
            return self._control
        if self._control is not None:
            self._control.close()
        ours, theirs = socket.socketpair()
        arguments: list[str] = [str(theirs.fileno()), json.dumps(asdict(self._options))]
        self._server = await asyncio.create_subprocess_exec(
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


def _arena() -> Arena | None:
    """Returns memory to share with an engine; None where the system has none, and all goes through the socket."""
    try:
        return Arena()
    except OSError as error:
        log.debug("no shared memory", reason=str(error))
        return None


class _FrameProtocol(asyncio.Protocol):
    """The worker's end of the socket: each frame is handled as it comes, without a task in between.

    `ended` is done when the engine is gone, with the error if a frame could not be handled.
    """

    def __init__(self, handle: Callable[[frames.Header, bytes], None], ended: asyncio.Future[None]) -> None:
        self._handle = handle
        self._reader = frames.Reader()
        self._transport: asyncio.Transport | None = None
        self.ended = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._handle(*frame)
        except Exception as error:  # noqa: BLE001 - whoever waits for the end raises it
            if not self.ended.done():
                self.ended.set_exception(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a killed engine's end is an end
        if not self.ended.done():
            self.ended.set_result(None)

    def write(self, data: bytes) -> None:
        """Writes soon; not to an engine that has died, whose end may not have been read yet."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Hangs up."""
        if self._transport is not None:
            self._transport.close()
