"""A private cluster: Redis and the gateway run throughout, and each candidate gets a new worker."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from redbatch.import_path import child_environment
from redbatch.readiness import fetch_missing_parts
from redbatch.tune.child_process import ChildProcess
from redbatch.up.child_spec import ChildSpec, SettingValues, gateway_specs, with_up_defaults, worker_specs
from redbatch.up.console import format_log_line
from redbatch.up.local_redis import LocalRedis, free_port
from redbatch.urls import http_url
from shared.process.listener import listen

HOST = "127.0.0.1"
START_TIMEOUT_S = 600.0
"""A large model may have to be downloaded first."""

STOP_TIMEOUT_S = 15.0
WORKER_ID = "tune"
"""Worker ID of all workers, one after the other. With another ID, the previous worker would count as alive for seconds,
and the new one would leave it a share of the entries."""

POLL_INTERVAL_S = 0.02
FIXED_SETTINGS: SettingValues = {
    "log_level": "info",  # the log of the worker states the device
    "drain_delay_s": "0",
    "drain_grace_s": "5",
    "max_body_bytes": "100000000",
    "max_inputs": "100000",
}


class TestbedError(RuntimeError):
    """A part of the cluster cannot run; the message states which, and the last line of its log."""


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """A worker that is ready: its device, and the seconds that it took to start."""

    device: str
    start_s: float


class Testbed:
    """Runs the cluster during a `with` block.

    Args:
        settings: settings of every worker, by name, as text. `REDBATCH_*` variables of the environment have no effect.

    Raises:
        TestbedError: the gateway does not start.
        LocalRedisError: there is no Redis server to start.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings: SettingValues = with_up_defaults(dict(settings)) | FIXED_SETTINGS
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REDBATCH_")}
        self._environment = child_environment(environment)
        self._parts = ExitStack()
        self._gateway: ChildProcess | None = None
        self._worker: ChildProcess | None = None
        self._workers = 0
        self._port = 0
        self._folder = Path()

    @property
    def url(self) -> str:
        """URL of the gateway."""
        return http_url(HOST, self._port)

    def __enter__(self) -> Self:
        with self._parts as parts:
            self._folder = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="redbatch-tune-")))
            self._settings["redis_url"] = parts.enter_context(LocalRedis(unix_socket=True)).url
            with listen(HOST, 0) as listener:
                self._port = listener.getsockname()[1]
                (spec,) = gateway_specs(1, self._settings, listener.fileno(), self._environment)
                gateway = self._gateway = self._start(spec)
            parts.callback(gateway.stop, STOP_TIMEOUT_S)
            parts.callback(self._stop_worker)
            self._wait_until_ready(gateway, self._port, ready=False)
            self._parts = parts.pop_all()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._parts.close()

    def start_worker(self, settings: Mapping[str, str]) -> WorkerStart:
        """Stops the current worker, starts one with these settings in addition, and returns when it is ready.

        Raises:
            TestbedError: the worker cannot run.
        """
        self._stop_worker()
        began_s = time.monotonic()
        self._workers += 1
        port = free_port()
        worker_settings = {**self._settings, **settings, "admin_port": str(port), "worker_id": WORKER_ID}
        (spec,) = worker_specs(1, worker_settings, self._environment)
        worker = self._worker = self._start(spec)
        self._wait_until_ready(worker, port, ready=True)
        if self._gateway is not None:
            self._wait_until_ready(self._gateway, self._port, ready=True)
        return WorkerStart(str(worker.last_event("engine ready").get("device", "cpu")), time.monotonic() - began_s)

    def _start(self, spec: ChildSpec) -> ChildProcess:
        return ChildProcess(spec, self._folder / f"{spec.name}-{self._workers}.log")

    def _stop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop(STOP_TIMEOUT_S)

    def _wait_until_ready(self, process: ChildProcess, port: int, *, ready: bool) -> None:
        """Waits until a process answers on a port and, if `ready` is true, reports no missing part."""
        until_s = time.monotonic() + START_TIMEOUT_S
        while process.running and time.monotonic() < until_s:
            missing = asyncio.run(fetch_missing_parts(HOST, port))
            if missing == [] or (missing is not None and not ready):
                return
            time.sleep(POLL_INTERVAL_S)
        reason = "is not ready" if process.running else "cannot run"
        raise TestbedError(f"{process.name} {reason}: {format_log_line(process.last_line(), brief=True)}")
