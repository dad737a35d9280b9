"""The cost of a request (CPU of each role, commands and bytes of Redis), and the resources that processes hold."""

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


class Server(Protocol):
    """A server to measure: its URL, its processes, and the Redis between them, if there is one."""

    @property
    def url(self) -> str:
        """Target of POST requests."""

    @property
    def redis(self) -> Redis | None:
        """A client of this Redis."""

    def processes(self) -> Processes:
        """Returns the processes by role."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters at a time (s since the epoch). `commands` counts calls of Redis by name, those in scripts included."""

    at_s: float
    cpu_s: Mapping[str, float]
    commands: Mapping[str, int] = field(default_factory=dict)
    redis_in_bytes: int = 0
    redis_out_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """Differences of two snapshots per request: CPU by role, calls of Redis by name, bytes to and from Redis."""

    cpu_us: Mapping[str, float]
    commands: Mapping[str, float]
    redis_in_bytes: float
    redis_out_bytes: float


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of the processes by role: connections to Redis, largest resident memory, whether torch is loaded."""

    connections: Mapping[str, int]
    rss_bytes: Mapping[str, int]
    has_torch: Mapping[str, bool]


def snapshot(server: Server, processes: Processes | None = None) -> Snapshot:
    """Returns the counters now. CPU times have steps of 10 ms: leave seconds between two snapshots.

    `processes` are the processes to read; to search for them takes some 20 ms. Raises ClusterError if one of them died.
    """
    members = server.processes() if processes is None else processes
    info = {} if server.redis is None else server.redis.info(*INFO_SECTIONS)
    calls = {name.removeprefix("cmdstat_"): each["calls"] for name, each in info.items() if name.startswith("cmdstat_")}
    return Snapshot(
        time.time(),
        {role: _cpu_s(role, those) for role, those in members.items()},
        calls,
        info.get("total_net_input_bytes", 0),
        info.get("total_net_output_bytes", 0),
    )


def per_request(before: Snapshot, after: Snapshot, requests: float) -> Cost:
    """Returns the differences of two snapshots of the same processes, divided by the requests between them."""
    calls = {name: number - before.commands.get(name, 0) for name, number in after.commands.items()}
    return Cost(
        {role: (after.cpu_s[role] - before.cpu_s[role]) * 1e6 / requests for role in after.cpu_s},
        {name: number / requests for name, number in calls.items() if number > 0},
        (after.redis_in_bytes - before.redis_in_bytes) / requests,
        (after.redis_out_bytes - before.redis_out_bytes) / requests,
    )


def resources(client: Redis, processes: Processes) -> Resources:
    """Returns the resources that processes hold now. Reading their memory is slow: not between two snapshots.

    Raises ClusterError if one of them died.
    """
    names = [each["name"].partition(":")[0] for each in client.client_list()]
    return Resources(
        Counter(name for name in names if name in processes),
        {role: _rss_bytes(role, those) for role, those in processes.items() if those},
        {role: any(_has_torch(each) for each in those) for role, those in processes.items()},
    )


def _cpu_s(role: str, processes: Sequence[psutil.Process]) -> float:
    with _translate_errors(role):
        return sum(sum(each.cpu_times()[:2]) for each in processes)


def _rss_bytes(role: str, processes: Sequence[psutil.Process]) -> int:
    with _translate_errors(role):
        return max(each.memory_info().rss for each in processes)


@contextmanager
def _translate_errors(role: str) -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        raise ClusterError(f"the {role} died during the measurement") from None


def _has_torch(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any("/torch/" in each.path for each in process.memory_maps())
    return False
