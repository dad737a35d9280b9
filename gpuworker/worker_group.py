"""The workers of one process, one for each of its devices: their signals, their admin port, and their end.

Each is a separate consumer with its own engine, which restarts without the others. A worker whose model cannot be
loaded, such as on a GPU that has failed, is tried again later, while another worker serves.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Mapping, Sequence

import structlog
import uvloop

from gpuworker.gpu import devices
from gpuworker.gpu.devices import Gpu, NoGpuError
from gpuworker.gpu.lease_slots import turn_devices
from gpuworker.hub import check_hub
from gpuworker.model_spec import ModelLoadError, parse_model
from gpuworker.settings import WorkerSettings
from gpuworker.worker import Worker
from shared.process.admin_server import AdminServer, PortTakenError
from shared.process.gc_tuning import collect_rarely
from shared.process.log_text import MODEL_FAILS
from shared.process.redis_advice import advise_until_redis_answers
from shared.process.settings import print_error
from shared.process.tasks import cancel_and_wait, wait_for_event
from shared.process.tracing import Tracing, start_tracing

log = structlog.get_logger()

RETRY_S = 30.0
"""Pause before a device that could not serve is tried again."""


class WorkerGroup:
    """Workers that share a process.

    Args:
        settings: of the process.
        device_names: the devices that they use.
        gpus: the GPUs that this process sees.
        tracing: creates the spans, if requests are traced.
    """

    def __init__(
        self, settings: WorkerSettings, device_names: list[str], gpus: Sequence[Gpu], tracing: Tracing | None = None
    ) -> None:
        self._settings = settings
        self._tracing = tracing
        self._gpus = gpus
        self._devices = device_names
        self._name = settings.worker_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._stop = asyncio.Event()
        self._workers: dict[str, Worker] = {}
        self._failed: set[str] = set()

    async def run(self) -> int:
        """Works until SIGTERM or SIGINT, or until no worker can; returns the highest exit code of the workers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        settings = self._settings
        or_free = "admin_port" not in settings.model_fields_set
        host, port = settings.admin_host, settings.admin_port
        admin = AdminServer(host, port, self._missing_parts, self._is_alive, or_free=or_free)
        admin.start()
        collect_rarely()
        advice = asyncio.create_task(advise_until_redis_answers(self._missing_parts, settings.model_fields_set))
        try:
            codes = await asyncio.gather(
                *(self._run_worker(name, device, admin.port) for name, device in self._devices_by_name().items())
            )
        finally:
            admin.stop()
            await cancel_and_wait([advice])
        return max(codes)

    def _devices_by_name(self) -> Mapping[str, str]:
        """Returns the device of each worker."""
        if len(self._devices) == 1:
            return {self._name: self._devices[0]}
        return {f"{self._name}-{number}": device for number, device in enumerate(self._devices)}

    async def _run_worker(self, name: str, device: str, admin_port: int) -> int:
        """Runs the worker of one device, again if it failed and another has not; returns its exit code."""
        settings = self._settings.model_copy(update={"device": device, "devices": ""})
        while True:
            worker = self._workers[name] = Worker(settings, name, self._gpus, self._stop, self._tracing)
            ports = {"admin_port": admin_port, "redis": settings.redis_address}
            log.info("worker starts", worker=name, queue=settings.queue_name, device=device, **ports)
            code = await worker.run()
            del self._workers[name]
            self._failed = (self._failed - self._serving()) | {name}
            if len(self._failed) == len(self._devices):  # each has failed since it last served
                self._stop.set()
            if code and not self._stop.is_set():
                log.error("a device cannot serve: it is tried again", worker=name, device=device, in_s=RETRY_S)
                await wait_for_event(self._stop, RETRY_S)
            if self._stop.is_set():
                return code

    def _serving(self) -> set[str]:
        return {name for name, worker in self._workers.items() if not worker.missing_parts()}

    def _missing_parts(self) -> list[str]:
        """Returns what keeps this process from serving: nothing while one of its workers serves."""
        missing = [each.missing_parts() for each in list(self._workers.values())]
        return [] if any(not each for each in missing) else next(iter(missing), ["engine"])

    def _is_alive(self) -> bool:
        return all(each.is_alive() for each in list(self._workers.values()))


def run(settings: WorkerSettings) -> int:
    """Runs the workers of this process; returns its exit code: 0 after a drain, 2 if a restart would not help."""
    try:
        model = parse_model(settings.model, settings.model_revision)
        check_hub(model, settings.model_revision)
        host, variable = devices.list_gpus(), os.environ.get(devices.VISIBLE)
        gpus = devices.visible_gpus(host, variable)
        devices.name_mig_devices(gpus, os.environ)
        device_names = devices.engine_devices(settings.devices, settings.device, gpus)
        # With a lease, the pool has the GPUs; and a model that computes nothing runs in a GPU's place.
        uses_device = settings.gpu_lease == "off" and not model.is_simulated
        if uses_device and devices.lists_all(host, variable):
            option = f"--devices {settings.devices}" if settings.devices else f"--device {settings.device}"
            devices.check_devices(device_names, option, gpus)
        if settings.gpu_lease == "batch":
            device_names = turn_devices(device_names, settings.lease.gpus)
        if settings.span:
            device_names = [devices.span(device_names, gpus)]
    except (ModelLoadError, NoGpuError) as error:
        log.error(MODEL_FAILS, reason=str(error))  # noqa: TRY400 - the reason says where to look
        return 2

    tracing = start_tracing(settings.tracing, "worker")

    async def main() -> int:
        return await WorkerGroup(settings, device_names, gpus, tracing).run()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except PortTakenError as error:
        print_error(str(error))
        return 1
    finally:
        if tracing is not None:
            tracing.stop()
