"""Workers whose model fails on every batch: they stop claiming, others take over, and they come back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of, log_lines, metric
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

UNAVAILABLE = "tests.integration.functions.function_models:Unavailable"
MODEL = "tests.integration.functions.function_models:Failing"


async def start_worker(cluster: GatewayCluster, file: Path, backoff_s: float) -> Program:
    """Starts a worker whose model fails while a file exists; its circuit soon opens."""
    args = json.dumps({"file": str(file)})
    return await cluster.start_worker(MODEL, model_args=args, circuit_after_s=0.2, circuit_backoff_s=backoff_s)


def predict(gateway: GatewayProcess) -> httpx.Response:
    """Sends a request."""
    return plain_http.post(f"{gateway.url}/predict", json={"input": 7}, timeout=60)


def missing(worker: Program) -> list[str]:
    """Returns the list `missing` of a worker's /readyz."""
    port = next(line["admin_port"] for line in log_lines(worker) if "admin_port" in line)
    answer = plain_http.get(f"http://127.0.0.1:{port}/readyz")
    parts: list[str] = answer.json().get("missing", [])
    assert answer.status_code == (503 if parts else 200)
    return parts


async def test_a_worker_with_a_failing_model_leaves_the_work_to_others(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Once its circuit is open, every request is answered by the other worker, and its readiness says why."""
    broken = tmp_path / "broken"
    broken.touch()
    gateway, failing, working = await asyncio.gather(
        cluster.start_gateway(),
        start_worker(cluster, broken, backoff_s=60),
        start_worker(cluster, tmp_path / "whole", backoff_s=60),
    )
    await wait_until(lambda: gateway.ready_workers(cluster.queue) == 2, "the gateway sees both workers")
    async with plain_http.client(timeout=60) as client:

        async def send_some() -> list[int]:
            requests = (client.post(f"{gateway.url}/predict", json={"input": n}) for n in range(20))
            return [answer.status_code for answer in await asyncio.gather(*requests)]

        statuses: list[int] = []
        while missing(failing) != ["model_failing: OSError"]:
            statuses += await send_some()
        # On a busy machine the other may have run none of them.
        assert {500} <= set(statuses) <= {200, 500}, "before, its batches failed and those of the other did not"
        inputs = metric(working, "redbatch_inputs_total")
        assert await send_some() == [200] * 20
        assert metric(working, "redbatch_inputs_total") == inputs + 20
    assert (missing(working), metric(failing, "redbatch_circuit_opened_total")) == ([], 1)
    state = f'redbatch_workers{{queue="{cluster.queue}",state="failing"}}'
    await wait_until(lambda: gateway.metric(state) == 1, "the gateway knows its state")


async def test_the_retries_of_one_input_open_no_circuit(cluster: GatewayCluster, tmp_path: Path) -> None:
    """They are one failure, however many they are: the input may be bad, and nothing else was tried."""
    settings = {"retry_backoff_ms": 50, "max_retries": 6, "circuit_after_s": 0.2, "max_dead_letters": 0}
    args = json.dumps({"file": str(tmp_path / "batches")})
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(UNAVAILABLE, model_args=args, **settings)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    answer = await asyncio.to_thread(
        plain_http.post, f"{gateway.url}/predict", json={"input": "!ever", "timeout_ms": 50_000}, timeout=60
    )
    assert "It was tried again 6 times." in error_of(answer)["message"]
    assert metric(worker, "redbatch_circuit_opened_total") == 0


async def test_without_another_worker_clients_are_told_until_it_works_again(
    cluster: GatewayCluster, tmp_path: Path
) -> None:
    """503 `model_failing` with Retry-After at once; after the backoff one entry is tried, and its success ends it."""
    broken = tmp_path / "broken"
    broken.touch()
    gateway, worker = await asyncio.gather(cluster.start_gateway(), start_worker(cluster, broken, backoff_s=1))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    answers = [predict(gateway)]
    while answers[-1].status_code != 503:
        answers.append(await asyncio.to_thread(predict, gateway))
    assert {error_of(each)["code"] for each in answers[:-1]} == {"input_failed"}
    error = error_of(answers[-1])
    assert (error["code"], "(OSError)" in error["message"]) == ("model_failing", True)
    assert int(answers[-1].headers["retry-after"]) >= 1
    opened = metric(worker, "redbatch_circuit_opened_total")
    while metric(worker, "redbatch_circuit_opened_total") == opened:  # an attempt fails, and opens it again
        assert (await asyncio.to_thread(predict, gateway)).status_code in (500, 503)
    broken.unlink()
    await wait_until(lambda: predict(gateway).status_code == 200, "it works again", timeout_s=30, poll_s=0.1)
    assert missing(worker) == []
    assert any(line["msg"].startswith("the model works again") for line in log_lines(worker))
