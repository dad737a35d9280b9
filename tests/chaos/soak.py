"""Random faults for a given time, and the drift of memory, keys and connections: `make soak MINUTES=30`.

One gateway and one worker are never killed, so that their memory can be sampled. All other faults affect all processes.
Exits with 1 if a call was lost, misrouted or late, if a series has grown, or if a process has ended unexpectedly.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import psutil
import redis.asyncio
import typer
from matplotlib.figure import Figure
from rich.console import Console

from tests.chaos.history import Verdict, judge
from tests.chaos.scenario import FAST_WORKER, MODEL, Scenario, all_correct
from tests.chaos.test_redis import DATA_LOSSES, stall
from tests.chaos.test_workers import engine_of
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.leaks import find_leaks
from tests.processes import Processes
from tests.servers import Server

CLIENTS = 16
TIMEOUT_S = 30.0
SAMPLE_S = 2.0
QUIET_S = 8.0
MIN_PAUSE_S, MAX_PAUSE_S = 1.0, 6.0
STALL_S = 2.0
MAX_RATIO = 1.1
"""Maximum ratio of the last quarter's median to that of the second; the first quarter is for warm-up."""

MAX_GROWTH_MB = 5.0
SERIES = ("gateway_mb", "worker_mb", "engine_mb", "redis_mb", "keys", "connections")


@dataclass(frozen=True)
class Sample:
    """One sample; memory in MB (resident size; for Redis, its used_memory)."""

    second: float
    gateway_mb: float
    worker_mb: float
    engine_mb: float
    redis_mb: float
    keys: float
    connections: float


@dataclass
class Soak:
    """A cluster with its Redis, the faults that were injected, and the samples."""

    scenario: Scenario
    server: Server
    began: float = field(default_factory=time.monotonic)
    injected: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    crash_logs: list[str] = field(default_factory=list)

    async def inject_fault(self) -> None:
        """Injects a random fault."""
        name = self.scenario.rng.choice(list(FAULTS))
        await FAULTS[name](self)
        self.injected[name] += 1

    async def sample(self) -> None:
        """Takes a sample."""
        raw, worker, gateway = self.scenario.raw, self.scenario.workers[0], self.scenario.gateways[0]
        engine = engine_of(worker)
        try:
            used = float((await raw.info("memory"))["used_memory"])
            keys, connections = float(await raw.dbsize()), float(len(await raw.client_list()))
            self.samples.append(
                Sample(
                    round(time.monotonic() - self.began, 1),
                    _rss_mb(gateway.program.pid),
                    _rss_mb(worker.pid),
                    0.0 if engine is None else _rss_mb(engine.pid),
                    used / 1e6,
                    keys,
                    connections,
                )
            )
        except (redis.asyncio.RedisError, psutil.Error, OSError):
            return  # a process or Redis is down at this moment

    async def watch(self, stop: asyncio.Event) -> None:
        """Takes samples until the event is set."""
        while not stop.is_set():
            await self.sample()
            await asyncio.sleep(SAMPLE_S)

    def growth(self) -> tuple[dict[str, float], list[str]]:
        """Returns for each series the ratio of its last quarter to its second, and the series that have grown."""
        quarter = max(1, len(self.samples) // 4)
        before, after = self.samples[quarter : 2 * quarter], self.samples[-quarter:]
        times, grown = {}, []
        for name in SERIES:
            first, last = (statistics.median(getattr(each, name) for each in part) for part in (before, after))
            times[name] = round(last / first, 3) if first else 1.0
            if last > first * MAX_RATIO and last - first > (MAX_GROWTH_MB if name.endswith("_mb") else CLIENTS):
                grown.append(name)
        return times, grown


def _rss_mb(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / 1e6


async def kill_worker(soak: Soak) -> None:
    """Kills a worker and starts another."""
    victim = soak.scenario.workers.pop()
    victim.kill()
    await soak.scenario.start_worker()


async def kill_engine(soak: Soak) -> None:
    """Kills the engine of a random worker."""
    engine = engine_of(soak.scenario.rng.choice(soak.scenario.workers))
    if engine is not None:
        engine.kill()


async def kill_connections(soak: Soak) -> None:
    """Kills the connections of all processes to Redis."""
    await soak.scenario.raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


async def restart_redis(soak: Soak) -> None:
    """Kills Redis and starts it again without data."""
    os.kill(soak.server.pid, signal.SIGKILL)
    await asyncio.sleep(0.5)
    await asyncio.to_thread(soak.server.start)


FAULTS: dict[str, Callable[[Soak], Awaitable[object]]] = {
    "worker killed": kill_worker,
    "engine killed": kill_engine,
    "connections killed": kill_connections,
    "FLUSHALL": lambda soak: DATA_LOSSES["FLUSHALL"](soak.scenario),
    "group destroyed": lambda soak: DATA_LOSSES["group destroyed"](soak.scenario),
    "Redis stalls": lambda soak: stall(soak.server, STALL_S),
    "Redis killed": restart_redis,
}


async def run(minutes: float, seed: int, plot: Path, out: Path) -> bool:
    """Runs the soak test; returns whether no fault was found."""
    console = Console()
    with Server() as server:
        async with redis.asyncio.Redis.from_url(server.url, protocol=2) as raw, _processes() as processes:
            scenario = Scenario(
                GatewayCluster(processes, server.url, "soak"), raw, thorough=True, rows=[], rng=random.Random(seed)
            )
            await scenario.start(gateways=2, workers=3, model=MODEL, **FAST_WORKER)
            soak, stop = Soak(scenario, server), asyncio.Event()
            watching = asyncio.create_task(soak.watch(stop))
            async with scenario.load(CLIENTS, TIMEOUT_S) as calls:
                while time.monotonic() - soak.began < 60 * minutes:
                    await scenario.sleep_randomly(MIN_PAUSE_S, MAX_PAUSE_S)
                    await soak.inject_fault()
                    console.print(
                        f"{time.monotonic() - soak.began:6.0f} s  {len(calls):,} calls, {soak.injected.total()} faults"
                    )
                await asyncio.sleep(QUIET_S)
            stop.set()
            await watching
            await scenario.wait_until_drained()
            soak.crash_logs = scenario.crash_logs()
        leaks = _leaks(server, scenario)
    return report(console, soak, judge(calls), leaks, plot, out)


def _processes() -> Processes:
    return Processes(Path(tempfile.mkdtemp(prefix="redbatch-soak-")))


def _leaks(server: Server, scenario: Scenario) -> list[str]:
    with redis.Redis.from_url(server.url, protocol=2) as client:
        return find_leaks(client, scenario.cluster.keys)


def report(console: Console, soak: Soak, verdict: Verdict, leaks: list[str], plot: Path, out: Path) -> bool:
    """Prints, draws and writes the results; returns whether no fault was found."""
    growth, grown = soak.growth()
    faults = dict(soak.injected)
    console.print(f"{verdict.calls:,} calls, {soak.injected.total()} faults {faults}")
    console.print(f"lost {verdict.lost}, misrouted {verdict.misrouted}, late {verdict.late}, {dict(verdict.others)}")
    console.print(f"slowest {verdict.slowest_s:.1f} s; last quarter over second: {growth}; grown: {grown or 'none'}")
    console.print(f"left in Redis: {leaks or 'none'}")
    draw(soak.samples, plot)
    out.write_text(
        json.dumps({"verdict": asdict(verdict), "faults": faults, "growth": growth, "samples": len(soak.samples)})
        + "\n",
        encoding="utf-8",
    )
    console.print(f"unexpectedly ended: {soak.crash_logs or 'none'}")
    return all_correct(verdict) and not grown and not leaks and not soak.crash_logs


def draw(samples: list[Sample], path: Path) -> None:
    """Draws memory in the upper plot, keys and connections in the lower one."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    minutes = [each.second / 60 for each in samples]
    for name in SERIES[:4]:
        above.plot(minutes, [getattr(each, name) for each in samples], label=name.removesuffix("_mb"))
    for name in SERIES[4:]:
        below.plot(minutes, [getattr(each, name) for each in samples], label=name)
    above.set(ylabel="MB", ylim=(0, None), title="Memory, keys and connections during random faults")
    below.set(xlabel="minutes", ylim=(0, None))
    for axes in (above, below):
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="Duration of the faults, in minutes.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Seed of the random faults and times.")] = 22,
    plot: Annotated[Path, typer.Option(help="File of the plot.")] = Path("docs/images/soak.png"),
    out: Annotated[Path, typer.Option(help="File of the figures, as JSON.")] = Path(".bench/soak.json"),
) -> None:
    """Injects random faults into a running cluster."""
    out.parent.mkdir(parents=True, exist_ok=True)
    sys.exit(0 if asyncio.run(run(minutes, seed, plot, out)) else 1)


if __name__ == "__main__":
    typer.run(main)
