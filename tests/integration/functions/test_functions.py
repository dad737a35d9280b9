"""A function of the user's own behind POST /predict: a real gateway, a real worker, and the example in docs."""

from __future__ import annotations

import asyncio
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of
from tests.processes import Processes
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs/examples"
KINDS = "tests.integration.functions.function_models"


@pytest_asyncio.fixture
async def cluster(
    redis_url: str, queue_name: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayCluster]:
    """Processes of the test's own, which find these tests and the examples."""
    async with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        cluster = GatewayCluster(processes, redis_url, queue_name)
        cluster.environment["PYTHONPATH"] = f"{ROOT}:{EXAMPLES}"
        yield cluster


async def served(cluster: GatewayCluster, name: str, **settings: object) -> GatewayProcess:
    """Starts a gateway and a worker with a function; returns when both are ready."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(name, **settings))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway


def asked(gateway: GatewayProcess, body: object) -> httpx.Response:
    """Asks for a prediction."""
    return plain_http.post(f"{gateway.url}/predict", json=body, timeout=60)


async def test_any_json_goes_in_and_comes_out(cluster: GatewayCluster) -> None:
    """Null, nested lists, long texts and numbers: one by one, and many in their order."""
    gateway = await served(cluster, f"{KINDS}:Echo")
    values: list[Any] = [None, True, 7, -1.5, "", "é \U0001f600", [], {}, {"a": [1, {"b": None}]}, "x" * 10_000]
    for value in values:
        answer = asked(gateway, {"input": value})
        assert (answer.status_code, answer.json()) == (200, {"output": [value, 1]})
    many = values + list(range(200))
    answer = asked(gateway, {"inputs": many})
    assert [output[0] for output in answer.json()["outputs"]] == many
    assert int(answer.headers["x-batch-size"]) > 1
    assert asked(gateway, {"inputs": [5], "timeout_ms": 5000, "priority": "bulk"}).json() == {"outputs": [[5, 1]]}


async def test_what_cannot_be_computed_fails_alone(cluster: GatewayCluster) -> None:
    """Whichever of the three methods raises, its neighbours in the batch have their outputs."""
    gateway = await served(cluster, f"{KINDS}:Echo", model_args='{"batch_s": 0.05}')
    bad = {"!refuse": 400, "!preprocess": 500, "!transform": 500, "!less": 500, "!postprocess": 500, "!long": 500}
    async with plain_http.client(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        wanted = [*bad, *range(40)]
        answers = await asyncio.gather(
            *(client.post(f"{gateway.url}/predict", json={"input": each}) for each in wanted)
        )
    assert [each.status_code for each in answers] == [*bad.values(), *[200] * 40]
    assert [each.json()["output"][0] for each in answers[len(bad) :]] == list(range(40))
    assert error_of(answers[0])["message"] == "Not this one."
    assert error_of(answers[1])["message"] == "The model failed on this input (RuntimeError)."
    assert "40 MiB" in error_of(answers[5])["message"]
    answer = asked(gateway, {"inputs": [1, "!refuse", 2, "!transform"], "on_error": "null"}).json()
    assert [output and output[0] for output in answer["outputs"]] == [1, None, 2, None]
    assert [(each["index"], each["code"]) for each in answer["errors"]] == [(1, "invalid_request"), (3, "input_failed")]
    assert asked(gateway, {"inputs": [1, "!refuse"]}).status_code == 400


@pytest.mark.parametrize("where", ["preprocess", "transform"])
async def test_an_input_that_kills_the_engine_fails_alone(cluster: GatewayCluster, where: str) -> None:
    """At the third attempt, in its batch or before; those that ran beside it are answered all the same."""
    args = f'{{"batch_s": 0.1, "deadly": "!kill", "dies_in": "{where}"}}'
    gateway = await served(cluster, f"{KINDS}:Echo", model_args=args, max_dead_letters=0)
    async with plain_http.client(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        wanted = ["!kill", *range(20)]
        answers = await asyncio.gather(
            *(client.post(f"{gateway.url}/predict", json={"input": each}) for each in wanted)
        )
    assert [each.status_code for each in answers] == [500, *[200] * 20]
    assert error_of(answers[0])["code"] == "input_failed"


async def test_what_a_function_forks_does_not_outlive_its_engine(cluster: GatewayCluster) -> None:
    """Its processes have the engine's socket open no longer: its death is noticed, and the next one serves."""
    gateway = await served(cluster, f"{KINDS}:Forking")
    for _ in range(2):
        [square, engine] = asked(gateway, {"input": 7}).json()["output"]
        assert square == 49
        os.kill(engine, signal.SIGKILL)
    assert asked(gateway, {"input": 8}).json()["output"][0] == 64


async def test_arrays_go_out_as_lists(cluster: GatewayCluster) -> None:
    """An array of all results is as good as a list of them."""
    gateway = await served(cluster, f"{KINDS}:Outer")
    answer = asked(gateway, {"inputs": [[1, 2], [3, 4.5]]}).json()
    assert answer["outputs"] == [[[1, 2], [2, 4]], [[9, 13.5], [13.5, 20.25]]]


async def test_models_of_texts_and_functions_are_told_apart(cluster: GatewayCluster) -> None:
    """Each says where it is to be asked instead."""
    gateway = await served(cluster, f"{KINDS}:Outer")
    refused = gateway.embed({"text": "a"})
    assert (refused.status_code, "POST /predict" in error_of(refused)["message"]) == (400, True)
    refused = plain_http.post(f"{gateway.url}/tokenize", json={"inputs": "a"})
    assert refused.status_code == 422
    assert "POST /predict" in refused.json()["error"]


async def test_a_model_of_texts_says_where_it_is_asked(cluster: GatewayCluster) -> None:
    """The null model has vectors and no outputs."""
    gateway = await served(cluster, "null")
    refused = asked(gateway, {"input": "a"})
    assert (refused.status_code, "POST /embed" in error_of(refused)["message"]) == (400, True)


@pytest.mark.parametrize(
    ("name", "model_args", "said"),
    [
        ("nowhere_at_all:Model", "", "there is no module nowhere_at_all: install it"),
        (f"{KINDS}:Missing", "", "has no attribute 'Missing'"),
        (f"{KINDS}:Incomplete", "", "has no transform, no postprocess"),
        (f"{KINDS}:Unmakeable", "", "cannot be constructed: OSError: there are no weights"),
        (f"{KINDS}:Outer", '{"size": 3}', "cannot be constructed: TypeError"),
    ],
)
async def test_what_cannot_be_loaded_says_so_in_a_line(
    cluster: GatewayCluster, name: str, model_args: str, said: str
) -> None:
    """And the worker ends, with an exit code that is not 0."""
    program = await cluster.processes.start("worker", "gpuworker", cluster.env(model=name, model_args=model_args))
    assert await program.wait_until_ended(timeout_s=30) == 2
    assert said in program.output
    assert "Traceback" not in program.output


async def test_the_example_is_right_and_faster_in_batches(cluster: GatewayCluster) -> None:
    """The page's own program, as it is: it checks the squares and their order itself, and says how long each way took.

    One by one, 880 batches of one number sleep 0.61 s; in one request a few batches do not sleep a twentieth of that.
    """
    gateway = await served(cluster, "squares:Squares", max_batch_size=1_000)
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-P", str(EXAMPLES / "squares.py"), gateway.url],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    told = re.findall(
        r"^(one by one|each at once|in one request) +([\d.]+) s +([\d.]+) times as fast$", ran.stdout, re.MULTILINE
    )
    assert [name for name, _, _ in told] == ["one by one", "each at once", "in one request"]
    one, _, many = (float(seconds) for _, seconds, _ in told)
    assert one > 880 * 0.001 * math.log(2)
    assert many < one / 5
