"""Hosts whose clocks differ: deadlines use Redis' clock, so no answer is late and no expired input runs."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from tests import plain_http
from tests.integration.gateway import shifted_clock
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    gateway_of,
    is_listening,
    log_lines,
    null_vector,
    vector_bytes,
)
from tests.integration.gateway.gateway_cluster import worker_is_ready as is_ready
from tests.processes import Program
from tests.stall_detector import StallDetector
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

ROOT = Path(__file__).parents[3]
SHIFT_S = 5.0


async def start(cluster: GatewayCluster, name: str, module: str, shift_s: float, **settings: object) -> Program:
    """Starts a program whose clock is shifted by `shift_s` seconds."""
    env = cluster.env(**settings) | {"SHIFTED_MODULE": module, "SHIFT_S": str(shift_s), "PYTHONPATH": str(ROOT)}
    ready = is_listening if module == "api" else is_ready
    program = await cluster.processes.start(name, shifted_clock.MODULE, env, ready)
    clock = next(line for line in log_lines(program) if line["msg"] == "clock")
    assert abs(clock["shifted"] - clock["true"] - shift_s) < SHIFT_S / 2, "its clock is not shifted"
    return program


async def start_cluster(cluster: GatewayCluster, gateway_s: float, worker_s: float) -> tuple[GatewayProcess, Program]:
    """Starts a gateway and a worker with shifted clocks; the worker takes 1 s for each input."""
    model = "simulated:base_ms=1000,item_ms=0"
    program, worker = await asyncio.gather(
        start(cluster, "gateway", "api", gateway_s),
        start(cluster, "worker", "gpuworker", worker_s, model=model, max_batch_size=1),
    )
    gateway = gateway_of(program)
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway, worker


@pytest.mark.parametrize(("gateway_s", "worker_s"), [(SHIFT_S, 0.0), (0.0, SHIFT_S), (-SHIFT_S, SHIFT_S)])
async def test_deadlines_hold_between_hosts_whose_clocks_differ(
    cluster: GatewayCluster, client: httpx.AsyncClient, gateway_s: float, worker_s: float
) -> None:
    """Of four inputs of 1 s each, run in sequence within 2.7 s, one to three are answered; the others get a 504.

    A worker that used its own clock would treat all inputs as expired, or run inputs that no client waits for.
    """
    gateway, worker = await start_cluster(cluster, gateway_s, worker_s)
    start_s = time.monotonic()
    with StallDetector() as stalls:
        answers = await asyncio.gather(*(gateway.send(client, f"text {i}", x_timeout_ms="2700") for i in range(4)))
    assert time.monotonic() - start_s < SHIFT_S + stalls.longest_s
    answered = [i for i, each in enumerate(answers) if each.status_code == 200]
    assert 1 <= len(answered) <= 3
    assert all(vector_bytes(answers[i].json()["embedding"]) == null_vector(f"text {i}") for i in answered)
    late = [each for each in answers if each.status_code != 200]
    assert {(each.status_code, error_of(each)["code"]) for each in late} == {(504, "deadline_exceeded")}
    admin = next(line["admin_port"] for line in log_lines(worker) if "admin_port" in line)
    after = await gateway.send(client, "after", x_timeout_ms="20000")
    assert vector_bytes(after.json()["embedding"]) == null_vector("after")
    lines = plain_http.get(f"http://127.0.0.1:{admin}/metrics").text.splitlines()
    ran = next(float(line.split(" ")[1]) for line in lines if line.startswith("redbatch_inputs_total "))
    assert ran <= 4, "all late inputs were run"
