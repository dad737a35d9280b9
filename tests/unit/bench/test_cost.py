"""Differences of two snapshots."""

from __future__ import annotations

import subprocess
from unittest.mock import Mock

import psutil
import pytest

from bench.cluster import ClusterError
from bench.cost import Snapshot, per_request, resources, snapshot
from bench.peers.testbed import BareServer


@pytest.fixture
def gone() -> psutil.Process:
    """Returns a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        return psutil.Process(process.pid)


def test_costs_are_divided_by_the_requests() -> None:
    """CPU is in µs by role; Redis calls by name include new names, and exclude unchanged ones; bytes are in and out."""
    before = Snapshot(10.0, {"gateway": 1.0, "redis": 2.0}, {"xadd": 5, "info": 1}, 1_000, 2_000)
    after = Snapshot(11.0, {"gateway": 1.5, "redis": 2.1}, {"xadd": 1_005, "info": 1, "blpop": 100}, 3_000, 6_000)
    cost = per_request(before, after, 1_000)
    assert cost.cpu_us == {"gateway": pytest.approx(500), "redis": pytest.approx(100)}
    assert cost.commands == {"xadd": 1.0, "blpop": 0.1}
    assert (cost.redis_in_bytes, cost.redis_out_bytes) == (2.0, 4.0)


def test_a_process_that_died_is_named_by_its_role(gone: psutil.Process) -> None:
    """A failed step shows this message, and a process id would mean nothing to its reader."""
    with pytest.raises(ClusterError, match="the worker died during the measurement"):
        snapshot(BareServer("http://127.0.0.1:1/embed"), {"gateway": [psutil.Process()], "worker": [gone]})
    with pytest.raises(ClusterError, match="the engine died during the measurement"):
        resources(Mock(client_list=list), {"gateway": [psutil.Process()], "engine": [gone]})
