"""A whole cluster in one terminal: starts, supervises and stops it. No process or file is left when it ends."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from api.http.auth import requires_keys
from api.settings import GatewaySettings
from gpuworker.gpu import devices
from gpuworker.model_spec import is_function
from gpuworker.settings import WorkerSettings
from redbatch.exit_codes import EXIT_INTERRUPTED, report_failure
from redbatch.import_path import child_environment
from redbatch.readiness import fetch_missing_parts
from redbatch.up.api_key import create_api_key
from redbatch.up.child_spec import SettingValues, assign_gpus, gateway_specs, worker_specs
from redbatch.up.console import ClusterConsole, curl_line, format_log_line
from redbatch.up.data_dir import DataDir
from redbatch.up.local_redis import find_bundled
from redbatch.up.redis_check import check_redis
from redbatch.up.run_file import Announcement, RunFile, find_running_ups
from redbatch.up.supervised_redis import SupervisedShards
from redbatch.up.supervisor import Supervisor
from redbatch.urls import http_url, redis_cli_line
from shared.keys import Keys
from shared.process.log_text import MODEL_FAILS, MODEL_LOADS
from shared.process.tasks import cancel_and_wait
from shared.redis_url import mask_password, split_urls

PROBE_EVERY_S = 0.1
STOP_MARGIN_S = 5.0
MAX_ADMIN_PORTS = 4
LOG_WITHOUT_MESSAGES = "has tracebacks of your class; --error-messages log adds the messages, which may quote inputs"
LOG_WITH_MESSAGES = "has tracebacks of your class with the messages of exceptions, which may quote inputs"
ADMIN_PORT = re.compile(r'\badmin_port(?:": ?|=)(\d+)')
"""In the line that a process logs at its start."""


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """Number of gateways, of workers and of private Redis; 0 of these: there are others."""

    gateways: int
    workers: int
    private_redis: int = 1


class Cluster:
    """The processes of one `redbatch up`, and the handler of their reports (`SupervisorCallbacks`).

    `data_dir` keeps the data of its private Redis; None: the data end with this cluster. `max_redis_bytes` is the
    maxmemory of that Redis, or of all together.
    """

    def __init__(
        self,
        size: ClusterSize,
        settings: SettingValues,
        gateway: GatewaySettings,
        worker: WorkerSettings,
        data_dir: DataDir | None,
        max_redis_bytes: int,
    ) -> None:
        self._size = size
        self._settings = settings
        self._gateway = gateway
        self._worker = worker
        self._data_dir = data_dir
        self._max_redis_bytes = max_redis_bytes
        self._console = ClusterConsole(as_text=gateway.log_format == "text")
        self._redis: SupervisedShards | None = None
        self._gateways: list[Supervisor] = []
        self._workers: list[Supervisor] = []
        self._end_requested = asyncio.Event()
        self._num_signals = 0
        self._failure: str | None = None
        self._api_key = ""
        self._ready = False
        self._announcement: Announcement | None = None
        self._admin_ports: dict[str, int] = {}

    async def run(self, listener: socket.socket) -> int:
        """Starts all processes, waits for a signal or a failure, and stops them. Returns the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        start = asyncio.create_task(self._start(listener))
        ended = asyncio.create_task(self._end_requested.wait())
        try:
            await asyncio.wait((start, ended), return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                await start  # raises its error
                await ended
        finally:
            await cancel_and_wait((start, ended))
            await self._stop(listener)
        if self._failure is not None:
            return report_failure(self._failure)
        return EXIT_INTERRUPTED if self._num_signals > 1 else 0

    async def _start(self, listener: socket.socket) -> None:
        """Starts all processes, and prints how to use them once they serve.

        Raises LocalRedisError, or RedisRefusedError.
        """
        if not self._size.private_redis:
            for shard in self._gateway.shards:
                problem = await check_redis(shard, self._settings["queue"])
                if problem:  # it may come yet
                    self._console.print_line(f"no Redis yet at {mask_password(shard.redis_url)}: {problem}")
        else:
            await self._start_private_redis()
        self._start_children(listener)
        port = listener.getsockname()[1]
        url = http_url(self._gateway.host, port)
        self._announce(url)  # before the model is loaded: `redbatch queue` shows that it loads
        await self._wait_until_ready(port)
        self._console.print_facts(self._title(), self._facts(url))

    async def _start_private_redis(self) -> None:
        num_shards = self._size.private_redis
        data_dirs = [None] * num_shards if self._data_dir is None else self._data_dir.shards
        is_durable = self._gateway.job_durability == "aof"
        self._redis = SupervisedShards(self, self._max_redis_bytes, data_dirs, syncs_always=is_durable)
        urls = await self._redis.start()
        self._settings["redis_url" if num_shards == 1 else "redis_shards"] = ",".join(urls)
        if requires_keys(self._gateway):
            self._api_key = await create_api_key(urls, self._settings["queue"], self._data_dir)

    @property
    def _redis_urls(self) -> tuple[str, ...]:
        """The URL of each shard, or of the only Redis."""
        if not self._size.private_redis:
            return self._gateway.shard_urls
        return split_urls(self._settings.get("redis_shards", "")) or (self._settings["redis_url"],)

    def on_line(self, name: str, text: str) -> None:
        """Prints a line of output of a child, and notes the admin port that it names.

        Until the cluster is ready, it says itself that the model loads or cannot be served.
        """
        if not self._ready and (MODEL_LOADS in text or MODEL_FAILS in text):
            return
        if (found := ADMIN_PORT.search(text)) is not None:
            self._admin_ports[name] = int(found[1])
        self._console.print_child_line(name, text)

    def on_event(self, name: str, text: str) -> None:
        """Prints what happened to a child."""
        self._console.print_line(f"{name} {text}")

    def on_give_up(self, name: str, last_line: str) -> None:
        """Ends the cluster because this child cannot run."""
        self._failure = f"{name} cannot run: {format_log_line(last_line, brief=True)}"
        self._end_requested.set()

    def was_ready(self) -> bool:
        """Returns whether the cluster has been ready to serve."""
        return self._ready

    def _on_signal(self) -> None:
        self._num_signals += 1
        if self._num_signals == 1:
            self._console.clear_progress()
            self._console.print_line("stopping: requests in flight finish first (press Ctrl-C again to kill)")
            self._end_requested.set()
            return
        for child in (*self._gateways, *self._workers):
            child.kill()

    def _start_children(self, listener: socket.socket) -> None:
        environment = child_environment(os.environ)
        self._settings["port"] = str(listener.getsockname()[1])
        gateways = gateway_specs(self._size.gateways, self._settings, listener.fileno(), environment)
        gpu_uuids = assign_gpus(self._size.workers, self._worker, devices.list_visible_gpus())
        workers = worker_specs(
            self._size.workers, self._settings, environment, gateways=len(gateways), gpu_uuids=gpu_uuids
        )
        self._gateways = [Supervisor(spec, self) for spec in gateways]
        self._workers = [Supervisor(spec, self) for spec in workers]
        for child in (*self._workers, *self._gateways):  # workers first: loading the model takes longest
            child.start()

    def _announce(self, url: str) -> None:
        run_file = RunFile(
            pid=os.getpid(),
            url=url,
            redis_url=self._settings.get("redis_url", ""),
            queue=self._settings["queue"],
            requires_keys=requires_keys(self._gateway),
            has_private_redis=self._redis is not None,
            redis_shards="" if len(self._redis_urls) == 1 else ",".join(self._redis_urls),
        )
        try:
            self._announcement = Announcement(run_file)
        except OSError as error:
            self._console.print_line(
                f"`redbatch queue` needs --redis-url, because no run file could be written: {error}"
            )

    async def _wait_until_ready(self, port: int) -> None:
        clock = asyncio.get_running_loop().time
        started = clock()
        while (missing := await fetch_missing_parts(self._gateway.host, port)) != []:
            self._console.show_progress(self._progress_text(missing), clock() - started)
            await asyncio.sleep(PROBE_EVERY_S)
        self._ready = True

    def _progress_text(self, missing: list[str] | None) -> str:
        if missing is None:
            return "starting the gateway"
        if "redis" in missing:
            return f"waiting for Redis at {', '.join(map(mask_password, self._redis_urls))}"
        return f"loading model {self._worker.model}"

    def _title(self) -> str:
        counts = [(self._size.gateways, "gateway"), (self._size.workers, "worker")]
        parts = [f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts]
        return f"Redbatch is ready: {self._worker.model}, {', '.join(parts)}"

    def _facts(self, url: str) -> list[tuple[str, str]]:
        serves_function = is_function(self._worker.model)
        return [
            ("API", f"{url}  (documentation: {url}/docs)"),
            ("console", f"{url}/console{self._console_hint()}"),
            *([("key", self._api_key)] if self._api_key else []),
            ("try it", curl_line(url, self._api_key, function=serves_function)),
            *([("input", "put one of the class in place of 1")] if serves_function else []),
            *self._redis_facts(),
            *([("restart", self._restart_fact())] if self._redis is not None else []),
            ("metrics", self._metrics_fact()),
            *([("log", self._log_fact())] if serves_function else []),
            ("watch", f"{_command_name()} queue --watch{self._up_option()}"),
            ("stop", "Ctrl-C"),
            *_path_facts(),
        ]

    def _console_hint(self) -> str:
        command = f"{_command_name()} keys create --scope admin{self._up_option()}"
        return f"  (takes the key of: {command})" if self._api_key else ""

    def _log_fact(self) -> str:
        return LOG_WITHOUT_MESSAGES if self._worker.error_messages == "off" else LOG_WITH_MESSAGES

    def _redis_facts(self) -> list[tuple[str, str]]:
        """Returns the URL of each Redis, and the command that shows the length of the queue there."""
        program = shutil.which("redis-cli") or shutil.which("valkey-cli")
        cli = Path(program).name if program else str(find_bundled("redis-cli") or "redis-cli")
        lane = Keys(self._settings["queue"]).lanes[0]
        urls = self._redis_urls
        if len(urls) == 1:
            return [("Redis", mask_password(urls[0])), ("queue", redis_cli_line(cli, urls[0], "XLEN", lane))]
        shards = [(f"shard {number}", mask_password(url)) for number, url in enumerate(urls)]
        lines = [(f"queue {number}", redis_cli_line(cli, url, "XLEN", lane)) for number, url in enumerate(urls)]
        return [*shards, *lines]

    def _metrics_fact(self) -> str:
        """Returns the URLs of the first metrics, by the admin ports that the processes have logged."""
        ports = sorted(self._admin_ports.items())
        if not ports:
            return "on the admin ports, which each process logs at its start with --log-level info"
        host = self._gateway.admin_host
        urls = [f"{http_url(host, port)}/metrics ({name})" for name, port in ports[:MAX_ADMIN_PORTS]]
        more = f", and {len(ports) - len(urls)} more in the log" if len(ports) > len(urls) else ""
        return ", ".join(urls) + more

    def _up_option(self) -> str:
        """Returns the option that names this cluster in commands, if the user runs several."""
        return f" --up {self._settings['port']}" if len(find_running_ups()) > 1 else ""

    def _restart_fact(self) -> str:
        """Returns what a restart of this cluster loses, in one line."""
        if self._data_dir is None:
            return "loses accepted jobs and their results, and API keys; --data-dir DIR keeps them"
        return f"keeps accepted jobs and their results, and API keys, in {self._data_dir.path}"

    async def _stop(self, listener: socket.socket) -> None:
        """Stops gateways, then workers, then Redis: each depends on the ones after it.

        Workers that have joined are workers: the last requests of the gateways may be theirs.
        """
        self._console.clear_progress()
        listener.close()
        if self._announcement is not None:
            self._announcement.hide()
        grace_s = self._gateway.drain_delay_s + self._gateway.drain_grace_s + STOP_MARGIN_S
        await asyncio.gather(*(child.stop(grace_s) for child in self._gateways))
        if self._announcement is not None:
            self._announcement.withdraw()
        grace_s = self._worker.drain_grace_s + STOP_MARGIN_S
        await asyncio.gather(*(child.stop(grace_s) for child in self._workers))
        if self._redis is not None:
            await self._redis.stop()


def _path_facts() -> list[tuple[str, str]]:
    """Returns how to put the commands of this environment on the PATH, unless they are there."""
    script = Path(sys.prefix, "bin", "activate")
    if shutil.which("redbatch") or not script.is_file():
        return []
    shown = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return [("PATH", f"source {shlex.quote(str(shown))}  (puts `redbatch` on the PATH of a terminal)")]


def _command_name() -> str:
    """Returns the command as the user called it: under `make run`, its environment is not on the PATH."""
    program = Path(sys.argv[0])
    return shlex.quote(str(program)) if program.name == "redbatch" else "redbatch"
