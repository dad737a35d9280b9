"""Hosts whose clocks disagree: deadlines are on Redis' clock, so nothing comes too late or runs in vain."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from tests import plain_http
from tests.integration.gateway import shifted_clock
from tests.integration.gateway.gateway_cluster import (
    Gateway,
    House,
    digits,
    digits_of,
    error_of,
    lines_of,
    listens,
    where,
)
from tests.integration.gateway.gateway_cluster import worker_is_ready as is_ready
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

ROOT = Path(__file__).parents[3]
APART_S = 5.0


async def start(house: House, name: str, module: str, shift_s: float, **settings: object) -> Program:
    """Starts a program whose clock is wrong."""
    env = house.env(**settings) | {"SHIFTED": module, "SHIFT_S": str(shift_s), "PYTHONPATH": str(ROOT)}
    ready = listens if module == "api" else is_ready
    program = await house.processes.start(name, shifted_clock.NAME, env, ready)
    clock = next(line for line in lines_of(program) if line["msg"] == "clock")
    assert abs(clock["shown"] - clock["right"] - shift_s) < APART_S / 2, "its clock is wrong"
    return program


async def cluster(house: House, gateway_s: float, worker_s: float) -> tuple[Gateway, Program]:
    """Starts a gateway and a worker that takes 0.6 s for each input."""
    model = "simulated:base_ms=600,item_ms=0"
    program, worker = await asyncio.gather(
        start(house, "gateway", "api", gateway_s),
        start(house, "worker", "gpuworker", worker_s, model=model, max_batch_size=1),
    )
    gateway = where(program)
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway, worker


@pytest.mark.parametrize(("gateway_s", "worker_s"), [(APART_S, 0.0), (0.0, APART_S), (-APART_S, APART_S)])
async def test_deadlines_hold_between_hosts_whose_clocks_disagree(
    house: House, client: httpx.AsyncClient, gateway_s: float, worker_s: float
) -> None:
    """Four inputs of 0.6 s each, one after the other, with 1.6 s: two can be in time, and the fourth is not run.

    A worker that went by its own clock would take all for expired, or run what nobody waits for.
    """
    gateway, worker = await cluster(house, gateway_s, worker_s)
    began = time.monotonic()
    answers = await asyncio.gather(*(gateway.send(client, f"text {i}", x_timeout_ms="1600") for i in range(4)))
    assert time.monotonic() - began < APART_S
    good = [i for i, each in enumerate(answers) if each.status_code == 200]
    assert 1 <= len(good) <= 3
    assert all(digits(answers[i].json()["embedding"]) == digits_of(f"text {i}") for i in good)
    late = [each for each in answers if each.status_code != 200]
    assert {(each.status_code, error_of(each)["code"]) for each in late} == {(504, "deadline_exceeded")}
    admin = next(line["admin_port"] for line in lines_of(worker) if "admin_port" in line)
    patient = await gateway.send(client, "patient", x_timeout_ms="20000")
    assert digits(patient.json()["embedding"]) == digits_of("patient")
    lines = plain_http.get(f"http://127.0.0.1:{admin}/metrics").text.splitlines()
    ran = next(float(line.split(" ")[1]) for line in lines if line.startswith("redbatch_inputs_total "))
    assert ran <= 4, "one of those that came too late was never run"
