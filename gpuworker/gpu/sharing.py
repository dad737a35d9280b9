"""When a worker's engine may use a GPU: always, while the worker holds a lease, or for one batch at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import structlog

from gpuworker.gpu.devices import Gpu
from gpuworker.ipc.frames import Header
from gpuworker.gpu.lease import Holder
from gpuworker.gpu.slots import device_of, lock_of
from gpuworker.settings import WorkerSettings
from shared.process.tasks import end
from shared.connection import Link

log = structlog.get_logger()


class Grant(NamedTuple):
    """Where an engine may run, and what it is to lock on its host."""

    device: str
    lock: str = ""


class Bound(NamedTuple):
    """What the lease of a GPU brings about in its worker.

    `until` is when the engine has to have left the GPU; `send` sends it a frame; `lost` has it end at once. `stands_by`
    and `granted` are when the wait for a GPU begins and ends.
    """

    until: Callable[[float], None]
    send: Callable[[Header], None]
    lost: Callable[[], None]
    stands_by: Callable[[], None]
    granted: Callable[[], None]


class Tenancy(Protocol):
    """Grants the GPU to engines."""

    @property
    def waits(self) -> bool:
        """Whether the worker stands by, or its engine waits for a turn: it is silent then, and does not hang."""

    async def granted(self) -> Grant:
        """Waits until an engine may start."""

    async def run(self) -> None:
        """Works until cancelled."""

    def heard(self, kind: str) -> None:
        """The engine wants a turn (`want`), has it (`has`), or has had it (`done`)."""

    def died(self) -> bool:
        """The engine is gone. Returns whether it had to: its time on the GPU was over."""

    async def leave(self) -> None:
        """Gives back what is held: the engine has ended."""


class Unbound:
    """The GPU is this worker's own."""

    waits = False

    def __init__(self, device: str) -> None:
        self._device = device

    async def granted(self) -> Grant:
        """Grants it at once."""
        return Grant(self._device)

    async def run(self) -> None:
        """Has nothing to do."""
        await asyncio.Event().wait()

    def heard(self, kind: str) -> None:
        """Never happens."""

    def died(self) -> bool:
        """It may use the GPU as long as it lives."""
        return False

    async def leave(self) -> None:
        """Nothing is held."""


class Exclusive:
    """A GPU is this worker's as long as it lives; without one it stands by.

    Args:
        holder: of the lease.
        settings: of the worker.
        told: what it brings about.
        seen: the GPUs that its process sees.
    """

    def __init__(self, holder: Holder, settings: WorkerSettings, told: Bound, seen: Sequence[Gpu]) -> None:
        self._holder = holder
        self._pool, self._seen = settings.gpu_pool, seen
        self._device = settings.device
        self._told = told
        self._held = asyncio.Event()

    @property
    def waits(self) -> bool:
        """Whether it stands by."""
        return not self._held.is_set()

    async def granted(self) -> Grant:
        """Waits for the lease."""
        await self._held.wait()
        slot = self._holder.slot
        device = device_of(slot, self._device)
        return Grant(device, lock_of(slot, device, self._pool, self._seen))

    async def run(self) -> None:
        """Takes a lease and keeps it, again and again."""
        while True:
            self._told.stands_by()
            lease = await self._holder.take()
            log.info("a GPU is this worker's", slot=lease.slot, fence=lease.fence)
            self._held.set()
            self._told.granted()
            why = await self._holder.keep()
            self._held.clear()
            self._holder.lose(why)
            self._told.lost()

    def heard(self, kind: str) -> None:
        """Never happens."""

    def died(self) -> bool:
        """The next engine has the GPU, if it is still this worker's."""
        return self._holder.over

    async def leave(self) -> None:
        """Gives the GPU to whoever stands by."""
        await self._holder.leave()


class Turns:
    """A GPU is this worker's for one batch, then for that of whoever has waited longest.

    Args:
        holder: of the lease.
        settings: of the worker, whose device is where the model is loaded, whoever has the GPU.
        told: what it brings about.
        seen: the GPUs that its process sees.
    """

    def __init__(self, holder: Holder, settings: WorkerSettings, told: Bound, seen: Sequence[Gpu]) -> None:
        self._holder = holder
        self._pool, self._seen = settings.gpu_pool, seen
        self._device = device_of("0.0", settings.device)
        self._told = told
        self._wanted, self._done = asyncio.Event(), asyncio.Event()
        self._engine = 0
        self._locks, self._has = settings.gpu_lease_dir is not None, False

    @property
    def waits(self) -> bool:
        """Whether the engine waits for its turn, or for the lock of its host."""
        return self._wanted.is_set() or (self._locks and self._holder.lease is not None and not self._has)

    async def granted(self) -> Grant:
        """Loads the model at once: what is shared is time, not memory."""
        return Grant(self._device)

    async def run(self) -> None:
        """Takes a lease whenever the engine wants it, and keeps it until the batch is done."""
        while True:
            await self._wanted.wait()
            engine = self._engine
            await self._holder.take()
            if engine != self._engine:  # who wanted it has died meanwhile
                await self._holder.release()
                continue
            self._wanted.clear()
            self._done.clear()
            self._has = False
            lock = lock_of(self._holder.slot, self._device, self._pool, self._seen)
            self._told.send({"kind": "turn", "lock": lock})
            await self._have()

    async def _have(self) -> None:
        keeping, done = asyncio.create_task(self._holder.keep()), asyncio.create_task(self._done.wait())
        try:
            await asyncio.wait([keeping, done], return_when=asyncio.FIRST_COMPLETED)
            over, why = self._done.is_set(), keeping.result() if keeping.done() else ""
        finally:
            await end([keeping, done])
        if over:
            await self._holder.release()
        else:
            self._holder.lose(why)
            self._told.lost()

    def heard(self, kind: str) -> None:
        """The engine wants a turn, has it, or has had it."""
        self._has = kind == "has"
        if not self._has:
            (self._wanted if kind == "want" else self._done).set()

    def died(self) -> bool:
        """It neither waits nor runs any more."""
        over = self._holder.lease is not None and self._holder.over
        self._engine += 1
        self._wanted.clear()
        self._done.set()
        return over

    async def leave(self) -> None:
        """Gives the turn back, and its place among those who wait."""
        await self._holder.leave()


def tenancy_of(settings: WorkerSettings, worker: str, link: Link, told: Bound, seen: Sequence[Gpu]) -> Tenancy:
    """Returns when a worker's engine may use a GPU, as it is set.

    Args:
        settings: of the worker.
        worker: its name.
        link: a connection of its own.
        told: what a lease brings about.
        seen: the GPUs that its process sees.
    """
    if settings.gpu_lease == "off":
        return Unbound(settings.device)
    holder = Holder(settings, worker, link, told.until)
    return (Turns if settings.gpu_lease == "batch" else Exclusive)(holder, settings, told, seen)
