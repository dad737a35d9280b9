"""The workers of one process, one for each of its devices: their signals, their admin port, and their end.

Each is a consumer of its own with an engine of its own, which is started again alone. One whose model cannot be loaded,
as on a GPU that has failed, is tried again later, as long as another serves.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

import structlog
import uvloop

from gpuworker.gpu import devices
from gpuworker.gpu.devices import Gpu, NoGpu
from gpuworker.models import ModelError, parse_model
from gpuworker.settings import WorkerSettings
from gpuworker.worker import Worker
from shared.process.admin_server import AdminServer, PortTaken
from shared.process.gc_tuning import collect_rarely
from shared.process.tasks import wait_for_event
from shared.process.tracing import Tracing, start_tracing

log = structlog.get_logger()

AGAIN_S = 30.0
"""After which a device that could not serve is tried again."""


class Crew:
    """Workers that share a process.

    Args:
        settings: of the process.
        settled: the devices that they use.
        seen: the GPUs that this process sees.
        tracing: makes the spans, if requests are traced.
    """

    def __init__(
        self, settings: WorkerSettings, settled: list[str], seen: Sequence[Gpu], tracing: Tracing | None = None
    ) -> None:
        self._settings = settings
        self._tracing = tracing
        self._seen = seen
        self._devices = settled
        self._name = settings.worker_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._stop = asyncio.Event()
        self._workers: dict[str, Worker] = {}
        self._failed: set[str] = set()

    async def run(self) -> int:
        """Works until SIGTERM or SIGINT, or until no worker can; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        settings = self._settings
        admin = AdminServer(settings.admin_host, settings.admin_port, self._missing, self._alive)
        admin.start()
        collect_rarely()
        try:
            codes = await asyncio.gather(
                *(self._keep(name, device, admin.port) for name, device in self._names().items())
            )
        finally:
            admin.stop()
        return max(codes)

    def _names(self) -> Mapping[str, str]:
        """Returns the device of each worker."""
        if len(self._devices) == 1:
            return {self._name: self._devices[0]}
        return {f"{self._name}-{number}": device for number, device in enumerate(self._devices)}

    async def _keep(self, name: str, device: str, admin_port: int) -> int:
        """Runs the worker of one device, again if it has failed and others have not; returns its exit code."""
        settings = self._settings.model_copy(update={"device": device, "devices": ""})
        while True:
            worker = self._workers[name] = Worker(settings, name, self._seen, self._stop, self._tracing)
            log.info("worker starts", worker=name, queue=settings.queue_name, device=device, admin_port=admin_port)
            code = await worker.run()
            del self._workers[name]
            self._failed = (self._failed - self._serving()) | {name}
            if len(self._failed) == len(self._devices):  # each, since it served last
                self._stop.set()
            if code and not self._stop.is_set():
                log.error("a device is out of use: it is tried again", worker=name, device=device, in_s=AGAIN_S)
                await wait_for_event(self._stop, AGAIN_S)
            if self._stop.is_set():
                return code

    def _serving(self) -> set[str]:
        return {name for name, worker in self._workers.items() if not worker.missing()}

    def _missing(self) -> list[str]:
        """Returns what keeps this process from serving: nothing, as long as one of its workers serves."""
        told = [each.missing() for each in list(self._workers.values())]
        return [] if any(not each for each in told) else next(iter(told), ["engine"])

    def _alive(self) -> bool:
        return all(each.alive() for each in list(self._workers.values()))


def run(settings: WorkerSettings) -> int:
    """Runs the workers of this process; returns its exit code: 0 after a drain, 2 for what a restart cannot mend."""
    try:
        parse_model(settings.model)
        seen = devices.visible(devices.gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
        settled = devices.devices_of(settings.devices, settings.device, seen)
    except (ModelError, NoGpu) as error:
        sys.stderr.write(f"{error}\n")
        return 2

    tracing = start_tracing(settings.tracing, "worker")

    async def main() -> int:
        return await Crew(settings, settled, seen, tracing).run()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except PortTaken as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        if tracing is not None:
            tracing.stop()
