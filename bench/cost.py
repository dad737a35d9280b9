"""What a request costs: CPU of each role, commands and bytes of Redis; and what the processes hold."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import psutil
from redis import Redis

from bench.cluster import ClusterError

Processes = Mapping[str, Sequence[psutil.Process]]
INFO_SECTIONS = ("stats", "commandstats")


class Served(Protocol):
    """What is measured: where requests go, who works on them, and the Redis between them, if there is one."""

    @property
    def url(self) -> str:
        """Where requests are posted."""

    @property
    def redis(self) -> Redis | None:
        """A client of it."""

    def processes(self) -> Processes:
        """Returns the processes by role."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters at a moment (seconds since the epoch); of Redis, calls by name, those that scripts make included."""

    at_s: float
    cpu_s: Mapping[str, float]
    commands: Mapping[str, int] = field(default_factory=dict)
    redis_in_bytes: int = 0
    redis_out_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What lies between two snapshots, for each request: CPU by role, calls of Redis by name, bytes to and from it."""

    cpu_us: Mapping[str, float]
    commands: Mapping[str, float]
    redis_in_bytes: float
    redis_out_bytes: float


@dataclass(frozen=True, slots=True)
class Held:
    """What the processes hold at a moment, by role: connections to Redis, largest resident memory, torch or not."""

    connections: Mapping[str, int]
    rss_bytes: Mapping[str, int]
    has_torch: Mapping[str, bool]


def snapshot(served: Served, processes: Processes | None = None) -> Snapshot:
    """Returns the counters now. CPU times have steps of 10 ms: take seconds between two snapshots.

    `processes` are those to look at; to find them anew takes some 20 ms. Raises ClusterError when one of them is gone.
    """
    members = served.processes() if processes is None else processes
    info = {} if served.redis is None else served.redis.info(*INFO_SECTIONS)
    calls = {name.removeprefix("cmdstat_"): each["calls"] for name, each in info.items() if name.startswith("cmdstat_")}
    return Snapshot(
        time.time(),
        {role: _cpu_s(role, those) for role, those in members.items()},
        calls,
        info.get("total_net_input_bytes", 0),
        info.get("total_net_output_bytes", 0),
    )


def per_request(before: Snapshot, after: Snapshot, requests: float) -> Cost:
    """Returns what lies between two snapshots of the same processes, divided by the requests between them."""
    calls = {name: number - before.commands.get(name, 0) for name, number in after.commands.items()}
    return Cost(
        {role: (after.cpu_s[role] - before.cpu_s[role]) * 1e6 / requests for role in after.cpu_s},
        {name: number / requests for name, number in calls.items() if number > 0},
        (after.redis_in_bytes - before.redis_in_bytes) / requests,
        (after.redis_out_bytes - before.redis_out_bytes) / requests,
    )


def held(client: Redis, processes: Processes) -> Held:
    """Returns what they hold now. Looking at their memory takes a while: not between two snapshots.

    Raises ClusterError when one of them is gone.
    """
    names = [each["name"].partition(":")[0] for each in client.client_list()]
    return Held(
        Counter(name for name in names if name in processes),
        {role: _rss_bytes(role, those) for role, those in processes.items() if those},
        {role: any(_has_torch(each) for each in those) for role, those in processes.items()},
    )


def _cpu_s(role: str, processes: Sequence[psutil.Process]) -> float:
    with _alive(role):
        return sum(sum(each.cpu_times()[:2]) for each in processes)


def _rss_bytes(role: str, processes: Sequence[psutil.Process]) -> int:
    with _alive(role):
        return max(each.memory_info().rss for each in processes)


@contextmanager
def _alive(role: str) -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        raise ClusterError(f"the {role} died during the measurement") from None


def _has_torch(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any("/torch/" in each.path for each in process.memory_maps())
    return False
