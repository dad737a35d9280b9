"""A Redbatch cluster for a benchmark: a private Redis, and `redbatch up` as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import psutil
import redis
from prometheus_client.parser import text_string_to_metric_families

from bench.machine import ROOT
from redbatch.up.local_redis import LocalRedis, free_port
from shared.process.parent_death import wrap_command
from shared.process.settings import variable_of

ROLES = ("gateway", "worker", "engine", "redis")
HOST = "127.0.0.1"
START_S = 60.0
STOP_S = 45.0
POLL_S = 0.05
SCRAPE_S = 10.0
MAX_LOG_LINES = 15


class ClusterError(RuntimeError):
    """The cluster does not start (the message ends with its log), or one of its processes died."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The processes and settings of a cluster. `settings` are names without REDBATCH_ and their values."""

    model: str
    gateways: int = 1
    workers: int = 1
    appendonly: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


class Cluster:
    """A running cluster.

    Attributes:
        url: of POST /embed.
        redis: a client of its Redis.
    """

    def __init__(self, up: psutil.Process, server: LocalRedis, port: int) -> None:
        self.url = f"http://{HOST}:{port}/embed"
        self.redis = redis.Redis.from_url(server.url, protocol=2)
        self._up = up
        self._server = psutil.Process(server.pid)
        self._port = port

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Returns the living processes by role: redis, gateway, worker, engine."""
        processes: dict[str, list[psutil.Process]] = {role: [] for role in ROLES}
        processes["redis"].append(self._server)
        for each in self._up.children(recursive=True):
            with suppress(psutil.Error):
                words = " ".join(each.cmdline()).split(" ")[:2]
                if words[0] == "redbatch" and words[-1] in processes:
                    processes[words[-1]].append(each)
        return processes

    def metric(self, role: str, name: str, **labels: str) -> float:
        """Returns the sum of a metric over the processes of a role and over all labels but those given."""
        return sum(_sample(_scrape(process, self._port), name, labels) for process in self.processes()[role])

    def buckets(self, role: str, name: str) -> dict[float, float]:
        """Returns a histogram, summed over the processes of a role: the number of values up to each bound."""
        counts: dict[float, float] = {}
        for process in self.processes()[role]:
            for family in text_string_to_metric_families(_scrape(process, self._port)):
                for sample in family.samples:
                    if sample.name == f"{name}_bucket":
                        bound = float(sample.labels["le"])
                        counts[bound] = counts.get(bound, 0.0) + sample.value
        return counts

    def ready(self, shape: Shape) -> bool:
        """Returns whether every gateway reports every worker as ready."""
        gateways = self.processes()["gateway"]
        pages = [_scrape(process, self._port) for process in gateways]
        ready_workers = [_sample(page, "redbatch_workers", {"state": "ready"}) for page in pages]
        return ready_workers == [float(shape.workers)] * shape.gateways


@contextmanager
def cluster(shape: Shape, root: Path = ROOT) -> Iterator[Cluster]:
    """Runs a cluster, ready from the start of the block to its end. Raises ClusterError if it does not start.

    Args:
        shape: of the cluster.
        root: the checkout whose code it runs.
    """
    options = ("--appendonly", "yes", "--appendfsync", "everysec") if shape.appendonly else ()
    with tempfile.TemporaryDirectory(prefix="redbatch-bench-") as folder, LocalRedis(options=options) as server:
        port = free_port()
        log = Path(folder) / "up.log"
        with log.open("wb") as out:
            process = _start(shape, root, server.url, port, out.fileno())
        try:
            running = Cluster(psutil.Process(process.pid), server, port)
            with running.redis:
                _wait_until_ready(running, shape, process, log)
                yield running
        finally:
            _stop(process)


def clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of this process with these REDBATCH_* variables and no others."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("REDBATCH_")}
    return clean | {variable_of(name): value for name, value in settings.items()}


def _start(shape: Shape, root: Path, redis_url: str, port: int, out: int) -> subprocess.Popen[bytes]:
    size = ["--gateways", str(shape.gateways), "--workers", str(shape.workers)]
    rest = ["--redis-url", redis_url, "--model", shape.model, "--host", HOST, "--port", str(port)]
    return subprocess.Popen(
        wrap_command([sys.executable, "-P", "-m", "redbatch", "up", *size, *rest], signal.SIGTERM),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        env=clean_environment(shape.settings) | {"PYTHONPATH": str(root)},
        start_new_session=True,  # Ctrl-C reaches the benchmark alone, which then stops the cluster in order
    )


def _wait_until_ready(running: Cluster, shape: Shape, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError, psutil.Error):
            if running.ready(shape):
                return
        time.sleep(POLL_S)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-MAX_LOG_LINES:]
    raise ClusterError("\n".join([f"redbatch up ({shape.model}) did not become ready:", *lines]))


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        for each in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                each.kill()
        process.kill()
        process.wait()


def _scrape(process: psutil.Process, api_port: int) -> str:
    """Returns the metrics page of a gateway or worker, from its only listening port that is not the API's.

    Raises ConnectionError if it does not listen yet.
    """
    ports = {each.laddr.port for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    ports.discard(api_port)
    if not ports:
        raise ConnectionError("no admin port yet")
    with urlopen(f"http://{HOST}:{ports.pop()}/metrics", timeout=SCRAPE_S) as answer:
        page: str = answer.read().decode()
    return page


def _sample(page: str, name: str, labels: Mapping[str, str]) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
