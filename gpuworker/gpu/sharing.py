"""When a worker's engine may use a GPU: always, while the worker holds a lease, or for one batch at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import structlog

from gpuworker.gpu.devices import Gpu
from gpuworker.gpu.lease import GpuLease
from gpuworker.gpu.lease_slots import device_of, lock_of
from gpuworker.settings import WorkerSettings
from shared.connection import RedisConnection
from shared.process.tasks import cancel_and_wait

log = structlog.get_logger()

LATE_RETRY_S = 1.0
"""Pause before a worker that could not stand by, since no other worker serves, tries it again."""


class Grant(NamedTuple):
    """The device of an engine, and the name of the lock that it must take on its host; empty: no lock."""

    device: str
    lock: str = ""


class TurnEvent(Enum):
    """A step of an engine's turn on a GPU: it requests the turn, starts it, and ends it."""

    REQUESTED = "requested"
    STARTED = "started"
    ENDED = "ended"


class LeaseCallbacks(NamedTuple):
    """What the lease of a GPU causes in its worker.

    Attributes:
        on_extended: called with the time (monotonic clock) when the engine must have left the GPU.
        on_turn: called when the engine's turn begins, with the name of the lock that it must take on its host.
        on_lost: ends the engine at once.
        on_standby: called when a worker without a GPU, which holds no entries, begins to wait for one.
        on_late: called when an engine has waited too long for its turn; returns whether the worker stands by now.
        on_granted: called when a wait for a GPU ends, also if the worker does not stand by.
    """

    on_extended: Callable[[float], None]
    on_turn: Callable[[str], None]
    on_lost: Callable[[], None]
    on_standby: Callable[[], None]
    on_late: Callable[[], bool]
    on_granted: Callable[[], None]


class GpuSharing(Protocol):
    """Grants the GPU to engines."""

    @property
    def is_waiting(self) -> bool:
        """Whether the worker stands by, or its engine waits for a turn: it is silent then, and does not hang."""

    async def wait_until_granted(self) -> Grant:
        """Waits until an engine may start."""

    async def run(self) -> None:
        """Takes and keeps leases until cancelled."""

    def handle_turn(self, event: TurnEvent) -> None:
        """Handles a step of the engine's turn."""

    def handle_death(self) -> bool:
        """Handles the end of the engine. Returns whether it had to end: its time on the GPU was over."""

    async def leave(self) -> None:
        """Gives back what is held: the engine has ended."""


class Unshared:
    """The worker does not share its GPU."""

    is_waiting = False

    def __init__(self, device: str) -> None:
        self._device = device

    async def wait_until_granted(self) -> Grant:
        """Grants the device at once."""
        return Grant(self._device)

    async def run(self) -> None:
        """Does nothing until cancelled."""
        await asyncio.Event().wait()

    def handle_turn(self, event: TurnEvent) -> None:
        """Never happens."""

    def handle_death(self) -> bool:
        """Returns False: the engine may use the GPU while it lives."""
        return False

    async def leave(self) -> None:
        """Does nothing: nothing is held."""


class Exclusive:
    """The worker holds a GPU while it lives; without one it stands by.

    Args:
        gpu_lease: takes and keeps the lease.
        settings: of the worker.
        callbacks: what the lease causes.
        gpus: the GPUs that its process sees.
    """

    def __init__(
        self, gpu_lease: GpuLease, settings: WorkerSettings, callbacks: LeaseCallbacks, gpus: Sequence[Gpu]
    ) -> None:
        self._gpu_lease = gpu_lease
        self._pool, self._gpus = settings.lease.pool, gpus
        self._device = settings.device
        self._callbacks = callbacks
        self._held = asyncio.Event()

    @property
    def is_waiting(self) -> bool:
        """Whether the worker stands by."""
        return not self._held.is_set()

    async def wait_until_granted(self) -> Grant:
        """Waits for the lease."""
        await self._held.wait()
        slot = self._gpu_lease.slot
        device = device_of(slot, self._device)
        return Grant(device, lock_of(slot, device, self._pool, self._gpus))

    async def run(self) -> None:
        """Takes a lease and keeps it; takes the next one after it is lost."""
        while True:
            self._callbacks.on_standby()
            lease = await self._gpu_lease.acquire()
            log.info("gpu lease acquired", slot=lease.slot, fence=lease.fence)
            self._held.set()
            self._callbacks.on_granted()
            reason = await self._gpu_lease.keep_until_lost()
            self._held.clear()
            self._gpu_lease.lose(reason)
            self._callbacks.on_lost()

    def handle_turn(self, event: TurnEvent) -> None:
        """Never happens."""

    def handle_death(self) -> bool:
        """Returns whether the lease is over. If it is not, the next engine has the GPU."""
        return self._gpu_lease.is_over

    async def leave(self) -> None:
        """Gives the GPU to a worker that stands by."""
        await self._gpu_lease.leave()


class TimeShared:
    """The worker holds a GPU for one batch, then the worker that has waited longest holds it.

    Args:
        gpu_lease: takes and keeps the lease.
        settings: of the worker. The model is loaded on its device, whichever worker holds the GPU: not `auto`.
        callbacks: what the lease causes.
        gpus: the GPUs that its process sees.
    """

    def __init__(
        self, gpu_lease: GpuLease, settings: WorkerSettings, callbacks: LeaseCallbacks, gpus: Sequence[Gpu]
    ) -> None:
        self._gpu_lease = gpu_lease
        self._pool, self._gpus = settings.lease.pool, gpus
        self._device = settings.device
        self._wait_s = settings.lease.wait_s
        self._callbacks = callbacks
        self._turn_requested, self._turn_ended = asyncio.Event(), asyncio.Event()
        self._num_deaths = 0
        self._late_timer: asyncio.TimerHandle | None = None
        self._has_lock, self._turn_started = settings.lease.lock_dir is not None, False

    @property
    def is_waiting(self) -> bool:
        """Whether the engine waits for its turn, or for the lock of its host."""
        waits_for_lock = self._has_lock and self._gpu_lease.lease is not None and not self._turn_started
        return self._turn_requested.is_set() or waits_for_lock

    async def wait_until_granted(self) -> Grant:
        """Grants the device at once, to load the model: workers share time, not memory."""
        return Grant(self._device)

    async def run(self) -> None:
        """Takes a lease whenever the engine requests a turn, and keeps it until the batch is done."""
        while True:
            await self._turn_requested.wait()
            num_deaths = self._num_deaths
            self._set_late_timer(self._wait_s)
            try:
                await self._gpu_lease.acquire()
                if num_deaths != self._num_deaths:  # the engine that requested it has died meanwhile
                    await self._gpu_lease.release()
                    continue
                self._turn_requested.clear()
                self._turn_ended.clear()
                self._turn_started = False
                self._callbacks.on_turn(lock_of(self._gpu_lease.slot, self._device, self._pool, self._gpus))
                await self._keep_for_turn()
            finally:
                self._end_wait()

    def _set_late_timer(self, delay_s: float) -> None:
        self._late_timer = asyncio.get_running_loop().call_later(delay_s, self._handle_late)

    def _handle_late(self) -> None:
        self._late_timer = None
        if not self._callbacks.on_late():
            self._set_late_timer(LATE_RETRY_S)

    def _end_wait(self) -> None:
        """Ends the wait for a GPU and for the lock of its host, if it has not ended."""
        if self._late_timer is not None:
            self._late_timer.cancel()
            self._late_timer = None
        self._callbacks.on_granted()

    async def _keep_for_turn(self) -> None:
        keeping = asyncio.create_task(self._gpu_lease.keep_until_lost())
        ending = asyncio.create_task(self._turn_ended.wait())
        try:
            await asyncio.wait([keeping, ending], return_when=asyncio.FIRST_COMPLETED)
            over, reason = self._turn_ended.is_set(), keeping.result() if keeping.done() else ""
        finally:
            await cancel_and_wait([keeping, ending])
        if over:
            await self._gpu_lease.release()
        else:
            self._gpu_lease.lose(reason)
            self._callbacks.on_lost()

    def handle_turn(self, event: TurnEvent) -> None:
        """Handles a request, a start or an end of a turn."""
        self._turn_started = event is TurnEvent.STARTED
        if event is TurnEvent.REQUESTED:
            self._turn_requested.set()
        elif event is TurnEvent.STARTED:
            self._end_wait()
        elif event is TurnEvent.ENDED:
            self._turn_ended.set()

    def handle_death(self) -> bool:
        """Ends the turn of the engine, and its wait for one. Returns whether its lease was over."""
        over = self._gpu_lease.lease is not None and self._gpu_lease.is_over
        self._num_deaths += 1
        self._turn_requested.clear()
        self._turn_ended.set()
        return over

    async def leave(self) -> None:
        """Gives the turn back, and the place in the queue of those that wait."""
        await self._gpu_lease.leave()


def create_sharing(
    settings: WorkerSettings, worker: str, connection: RedisConnection, callbacks: LeaseCallbacks, gpus: Sequence[Gpu]
) -> GpuSharing:
    """Returns the way in which a worker shares GPUs, as set.

    Args:
        settings: of the worker.
        worker: its name.
        connection: used for leases only.
        callbacks: what a lease causes.
        gpus: the GPUs that its process sees.
    """
    if settings.gpu_lease == "off":
        return Unshared(settings.device)
    gpu_lease = GpuLease(settings.lease, settings.device, worker, connection, callbacks.on_extended)
    if settings.gpu_lease == "batch":
        return TimeShared(gpu_lease, settings, callbacks, gpus)
    return Exclusive(gpu_lease, settings, callbacks, gpus)
