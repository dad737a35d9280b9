"""Faults at random for as long as you like, and the drift of memory, keys and connections: `make soak MINUTES=30`.

One gateway and one worker are never killed themselves: theirs is the memory that is looked at. Everything else happens
to everybody. Exits with 1 when a call was lost, misrouted or late, when something has grown, or when a process has
ended by itself.
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
from tests.chaos.scenario import LIVELY, MODEL, Scene, whole
from tests.chaos.test_redis import HARMS, stall
from tests.chaos.test_workers import engine_of
from tests.integration.gateway.house import House
from tests.leaks import find_leaks
from tests.processes import Processes
from tests.servers import Server

CLIENTS = 16
TIMEOUT_S = 30.0
SAMPLE_S = 2.0
QUIET_S = 8.0
LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 6.0
STALL_S = 2.0
GROWTH = 1.1
"""The last quarter's median may be so many times that of the second: the first is for warming up."""

ALLOWED_MB = 5.0
SERIES = ("gateway_mb", "worker_mb", "engine_mb", "redis_mb", "keys", "connections")


@dataclass(frozen=True)
class Sample:
    """What a look found; memory in MB (resident; of Redis, what it says that it uses)."""

    second: float
    gateway_mb: float
    worker_mb: float
    engine_mb: float
    redis_mb: float
    keys: float
    connections: float


@dataclass
class Soak:
    """A cluster in its Redis, and what happens to it."""

    scene: Scene
    server: Server
    began: float = field(default_factory=time.monotonic)
    struck: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    fell_over: list[str] = field(default_factory=list)

    async def strike(self) -> None:
        """Does some harm."""
        name = self.scene.dice.choice(list(FAULTS))
        await FAULTS[name](self)
        self.struck[name] += 1

    async def sample(self) -> None:
        """Takes a look."""
        raw, worker, gateway = self.scene.raw, self.scene.workers[0], self.scene.gateways[0]
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
            return  # somebody is away just now

    async def watch(self, over: asyncio.Event) -> None:
        """Looks again and again until it is over."""
        while not over.is_set():
            await self.sample()
            await asyncio.sleep(SAMPLE_S)

    def growth(self) -> tuple[dict[str, float], list[str]]:
        """Returns how many times its second quarter the last of each series is, and those that have grown by that."""
        quarter = max(1, len(self.samples) // 4)
        before, after = self.samples[quarter : 2 * quarter], self.samples[-quarter:]
        times, grown = {}, []
        for name in SERIES:
            first, last = (statistics.median(getattr(each, name) for each in part) for part in (before, after))
            times[name] = round(last / first, 3) if first else 1.0
            if last > first * GROWTH and last - first > (ALLOWED_MB if name.endswith("_mb") else CLIENTS):
                grown.append(name)
        return times, grown


def _rss_mb(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / 1e6


async def kill_worker(soak: Soak) -> None:
    """Another takes its place."""
    victim = soak.scene.workers.pop()
    victim.kill()
    await soak.scene.hire()


async def kill_engine(soak: Soak) -> None:
    """Of any worker."""
    engine = engine_of(soak.scene.dice.choice(soak.scene.workers))
    if engine is not None:
        engine.kill()


async def kill_connections(soak: Soak) -> None:
    """Everybody's."""
    await soak.scene.raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


async def restart_redis(soak: Soak) -> None:
    """Killed, and empty when it is back."""
    os.kill(soak.server.pid, signal.SIGKILL)
    await asyncio.sleep(0.5)
    await asyncio.to_thread(soak.server.start)


FAULTS: dict[str, Callable[[Soak], Awaitable[object]]] = {
    "worker killed": kill_worker,
    "engine killed": kill_engine,
    "connections killed": kill_connections,
    "FLUSHALL": lambda soak: HARMS["FLUSHALL"](soak.scene),
    "group destroyed": lambda soak: HARMS["group destroyed"](soak.scene),
    "Redis stalls": lambda soak: stall(soak.server, STALL_S),
    "Redis killed": restart_redis,
}


async def run(minutes: float, seed: int, plot: Path, out: Path) -> bool:
    """Soaks; returns whether all is well."""
    console = Console()
    with Server() as server:
        async with redis.asyncio.Redis.from_url(server.url, protocol=2) as raw, _processes() as processes:
            scene = Scene(House(processes, server.url, "soak"), raw, thorough=True, rows=[], dice=random.Random(seed))
            await scene.open(gateways=2, workers=3, model=MODEL, **LIVELY)
            soak, over = Soak(scene, server), asyncio.Event()
            watching = asyncio.create_task(soak.watch(over))
            async with scene.load(CLIENTS, TIMEOUT_S) as calls:
                while time.monotonic() - soak.began < 60 * minutes:
                    await scene.pause(LEAST_PAUSE_S, MOST_PAUSE_S)
                    await soak.strike()
                    console.print(
                        f"{time.monotonic() - soak.began:6.0f} s  {len(calls):,} calls, {soak.struck.total()} faults"
                    )
                await asyncio.sleep(QUIET_S)
            over.set()
            await watching
            await scene.drained()
            soak.fell_over = scene.fell_over()
        leaks = _leaks(server, scene)
    return report(console, soak, judge(calls), leaks, plot, out)


def _processes() -> Processes:
    return Processes(Path(tempfile.mkdtemp(prefix="redbatch-soak-")))


def _leaks(server: Server, scene: Scene) -> list[str]:
    with redis.Redis.from_url(server.url, protocol=2) as client:
        return find_leaks(client, scene.house.keys)


def report(console: Console, soak: Soak, verdict: Verdict, leaks: list[str], plot: Path, out: Path) -> bool:
    """Prints, draws and writes what was found; returns whether all is well."""
    growth, grown = soak.growth()
    faults = dict(soak.struck)
    console.print(f"{verdict.calls:,} calls, {soak.struck.total()} faults {faults}")
    console.print(f"lost {verdict.lost}, misrouted {verdict.misrouted}, late {verdict.late}, {dict(verdict.others)}")
    console.print(f"slowest {verdict.slowest_s:.1f} s; last quarter over second: {growth}; grown: {grown or 'nothing'}")
    console.print(f"left in Redis: {leaks or 'nothing'}")
    draw(soak.samples, plot)
    out.write_text(
        json.dumps({"verdict": asdict(verdict), "faults": faults, "growth": growth, "samples": len(soak.samples)})
        + "\n",
        encoding="utf-8",
    )
    console.print(f"fell over: {soak.fell_over or 'nobody'}")
    return whole(verdict) and not grown and not leaks and not soak.fell_over


def draw(samples: list[Sample], path: Path) -> None:
    """Draws memory above, keys and connections below."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    minutes = [each.second / 60 for each in samples]
    for name in SERIES[:4]:
        above.plot(minutes, [getattr(each, name) for each in samples], label=name.removesuffix("_mb"))
    for name in SERIES[4:]:
        below.plot(minutes, [getattr(each, name) for each in samples], label=name)
    above.set(ylabel="MB", ylim=(0, None), title="Memory, keys and connections while faults strike at random")
    below.set(xlabel="minutes", ylim=(0, None))
    for axes in (above, below):
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long faults strike.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Which faults strike when.")] = 22,
    plot: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("docs/images/soak.png"),
    out: Annotated[Path, typer.Option(help="Where the figures go.")] = Path(".bench/soak.json"),
) -> None:
    """Has faults strike a running cluster at random."""
    out.parent.mkdir(parents=True, exist_ok=True)
    sys.exit(0 if asyncio.run(run(minutes, seed, plot, out)) else 1)


if __name__ == "__main__":
    typer.run(main)
