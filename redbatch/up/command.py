"""`redbatch up`: a whole cluster in one terminal, supervised, and gone without a trace when it ends."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from setproctitle import setproctitle

from api.http.auth import asks_for_keys
from api.settings import GatewaySettings
from gpuworker.models import is_function
from gpuworker.settings import WorkerSettings
from redbatch.up.command import run_file
from redbatch.up.cluster import Given, gateway_specs, under_up, worker_specs
from redbatch.import_path import child_environment
from shared.process.listener import ListenError, listen, missing_parts
from redbatch.up.local_redis import LocalRedisError, bundled
from shared.process.listener import raise_open_file_limit
from redbatch.up.own_redis import OwnRedis
from shared.process.settings import complain, read_settings
from redbatch.up.console import Screen, readable
from redbatch.up.supervisor import Child
from redbatch.urls import curl_line, http_url, mask_password, redis_cli_line
from shared.api_keys import add, new_key
from shared.keys import Keys
from shared.connection import Queue
from shared.settings import QueueSettings

PROBE_EVERY_S = 0.1
STOP_MARGIN_S = 5.0
EXIT_FAILED = 1
EXIT_KILLED = 130


@dataclass(frozen=True, slots=True)
class Size:
    """How many gateways and workers."""

    gateways: int
    workers: int


def run(size: Size, given: Given) -> int:
    """Runs a cluster until SIGINT or SIGTERM and returns the exit code: 0; 1 when it cannot run; 130 when killed."""
    setproctitle("redbatch up")
    settings = under_up(given)
    gateway, worker = read_settings(GatewaySettings, settings), read_settings(WorkerSettings, settings)
    raise_open_file_limit()
    try:
        with listen(gateway.host, gateway.port) as listener:
            cluster = Cluster(size, settings, gateway, worker)
            return asyncio.run(cluster.run(listener))
    except (ListenError, LocalRedisError) as error:
        complain(str(error))
        return EXIT_FAILED


class Cluster:
    """The parts of a running `up`, and what they report."""

    def __init__(self, size: Size, settings: Given, gateway: GatewaySettings, worker: WorkerSettings) -> None:
        self._size = size
        self._settings = settings
        self._gateway = gateway
        self._worker = worker
        self._screen = Screen()
        self._redis: OwnRedis | None = None
        self._gateways: list[Child] = []
        self._workers: list[Child] = []
        self._end = asyncio.Event()
        self._signals = 0
        self._failure: str | None = None
        self._key = ""
        self._ready = False

    async def run(self, listener: socket.socket) -> int:
        """Starts everything, waits for the end, stops everything. Returns the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        try:
            if "redis_url" not in self._settings:
                self._redis = OwnRedis(self)
                self._settings["redis_url"] = self._redis.start()
                if asks_for_keys(self._gateway):
                    self._key = await self._make_key()
            self._start_children(listener)
            waiting = asyncio.create_task(self._announce_when_ready(listener.getsockname()[1]))
            await self._end.wait()
            waiting.cancel()
        finally:
            await self._stop(listener)
        if self._failure is not None:
            complain(self._failure)
            return EXIT_FAILED
        return EXIT_KILLED if self._signals > 1 else 0

    async def _make_key(self) -> str:
        """Returns a key for a Redis that has none yet: nobody else could make one before the gateways look for it."""
        queue = Queue(QueueSettings(redis_url=self._settings["redis_url"]), self._settings["queue"], "redbatch-up")
        key, whole = new_key(("embed",), name="redbatch up")
        try:
            await add(queue.link("keys"), key)
        finally:
            await queue.close()
        return whole

    def line(self, name: str, text: str) -> None:
        """Prints a line of a child."""
        self._screen.line(name, text)

    def note(self, name: str, text: str) -> None:
        """Prints a line about a child."""
        self._screen.say(f"{name} {text}")

    def give_up(self, name: str, last_line: str) -> None:
        """Ends the cluster because this part of it cannot run."""
        self._failure = f"{name} cannot run: {readable(last_line, brief=True)}"
        self._end.set()

    def ever_ready(self) -> bool:
        """Says whether the cluster has served."""
        return self._ready

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self._screen.end_progress()
            self._screen.say("stopping: requests in flight finish first (Ctrl-C again kills)")
            self._end.set()
            return
        for child in (*self._gateways, *self._workers):
            child.kill()

    def _start_children(self, listener: socket.socket) -> None:
        environment = child_environment(os.environ)
        self._settings["port"] = str(listener.getsockname()[1])
        gateways = gateway_specs(self._size.gateways, self._settings, listener.fileno(), environment)
        workers = worker_specs(self._size.workers, self._settings, environment, gateways=len(gateways))
        self._gateways = [Child(spec, self) for spec in gateways]
        self._workers = [Child(spec, self) for spec in workers]
        for child in (*self._workers, *self._gateways):  # the model takes longest
            child.start()

    async def _announce_when_ready(self, port: int) -> None:
        clock = asyncio.get_running_loop().time
        started = clock()
        while (missing := await missing_parts(self._gateway.host, port)) != []:
            self._screen.progress(self._waiting_for(missing), clock() - started)
            await asyncio.sleep(PROBE_EVERY_S)
        self._ready = True
        url = http_url(self._gateway.host, port)
        redis_url = self._settings["redis_url"]
        try:
            run_file.announce(run_file.Running(os.getpid(), url, redis_url, self._settings["queue"]))
        except OSError as error:
            self._screen.say(f"`redbatch queue` will need --redis-url: {error}")
        self._screen.facts(self._title(), self._facts(url, redis_url))

    def _waiting_for(self, missing: list[str] | None) -> str:
        if missing is None:
            return "starting the gateway"
        if "redis" in missing:
            return f"waiting for Redis at {mask_password(self._settings['redis_url'])}"
        return f"loading model {self._worker.model}"

    def _title(self) -> str:
        counts = [(self._size.gateways, "gateway"), (self._size.workers, "worker")]
        parts = [f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts]
        return f"Redbatch is ready: {self._worker.model}, {', '.join(parts)}"

    def _facts(self, url: str, redis_url: str) -> list[tuple[str, str]]:
        program = shutil.which("redis-cli") or shutil.which("valkey-cli")
        cli = Path(program).name if program else str(bundled("redis-cli") or "redis-cli")
        lane = Keys(self._settings["queue"]).lanes[0]
        return [
            ("API", f"{url}  (its documentation: {url}/docs)"),
            *([("key", self._key)] if self._key else []),
            ("try it", curl_line(url, self._key, function=is_function(self._worker.model))),
            ("Redis", mask_password(redis_url)),
            ("queue", redis_cli_line(cli, redis_url, "XLEN", lane)),
            ("watch", f"{_called()} queue --watch"),
            ("stop", "Ctrl-C"),
        ]

    async def _stop(self, listener: socket.socket) -> None:
        """Stops the parts in the order in which they need each other: gateways, workers, Redis."""
        self._screen.end_progress()
        listener.close()
        run_file.withdraw(os.getpid())
        grace_s = self._gateway.drain_delay_s + self._gateway.drain_grace_s + STOP_MARGIN_S
        await asyncio.gather(*(child.stop(grace_s) for child in self._gateways))
        grace_s = self._worker.drain_grace_s + STOP_MARGIN_S
        await asyncio.gather(*(child.stop(grace_s) for child in self._workers))
        if self._redis is not None:
            await self._redis.stop()


def _called() -> str:
    """Returns the command as it was called: under `make run` its environment is not on the PATH."""
    called = Path(sys.argv[0])
    return shlex.quote(str(called)) if called.name == "redbatch" else "redbatch"
