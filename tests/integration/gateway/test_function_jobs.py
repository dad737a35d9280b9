"""Jobs of a user's function over HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of
from tests.integration.gateway.job_client import JobClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
DESCRIBE = "tests.integration.functions.function_models:Describe"
ECHO = "tests.integration.functions.function_models:Echo"
UNAVAILABLE = "tests.integration.functions.function_models:Unavailable"


async def start(cluster: GatewayCluster, model: str = ECHO, **settings: object) -> GatewayProcess:
    """Starts a gateway and a worker with a function; returns when both are ready."""
    cluster.environment["PYTHONPATH"] = str(ROOT)
    gateway, _ = await asyncio.gather(cluster.start_gateway(**settings), cluster.start_worker(model))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway


async def test_a_job_of_a_function_runs_to_its_end(cluster: GatewayCluster) -> None:
    """Inputs are any JSON values; outputs come in their order as JSON, in pages; only inputs that cannot run fail."""
    client = JobClient(await start(cluster, max_input_bytes=100_000))
    values: list[Any] = [None, True, 7, -1.5, "", "é", [], {"a": [1, {"b": None}]}, "x" * 200_000, *range(80)]
    values[20] = "!refuse"
    new_job = client.job_of(client.post({"inputs": values}))
    job = client.wait_until_ended(new_job)
    assert (job["status"], job["op"], job["n"], job["done"], job["failed"]) == ("done", "predict", 89, 87, 2)
    assert [(each["index"], each["code"]) for each in job["errors"]] == [(8, "too_large"), (20, "invalid_request")]
    expected = [None if i in (8, 20) else value for i, value in enumerate(values)]
    for outputs in (client.outputs(new_job), client.outputs(new_job, limit=7)):
        assert [output and output[0] for output in outputs] == expected
    assert client.outputs(client.job_of(client.post({"input": None})) | new_job) == client.outputs(new_job)
    refused = client.get(new_job["result_url"], accept="application/x-npy")
    assert (refused.status_code, error_of(refused)["code"]) == (400, "invalid_request")


async def test_an_integer_of_more_than_64_bits_fails_alone(cluster: GatewayCluster) -> None:
    """In one document as in lines: it would be rounded."""
    client = JobClient(await start(cluster))
    values = [2**64 - 1, 2**64, 1e30, 2.0**64, str(2.0**64)]
    for answer in (client.post({"inputs": values}), client.post_lines([{"input": each} for each in values])):
        job = client.wait_until_ended(client.job_of(answer))
        [error] = job["errors"]
        assert (job["done"], error["index"], error["code"]) == (4, 1, "invalid_request")
        assert "2^64" in error["message"]


async def test_binary_inputs_of_a_job_reach_the_class(cluster: GatewayCluster) -> None:
    """In base64, as a list and as lines, the class gets bytes; malformed base64 fails alone."""
    client = JobClient(await start(cluster, model=DESCRIBE))
    values = [{"base64": base64.b64encode(b"a" * 100_000).decode()}, 7, {"base64": ""}, {"base64": "!"}]
    expected = [["bytes", sha256(b"a" * 100_000).hexdigest()], ["int", 7], ["bytes", sha256(b"").hexdigest()], None]
    for answer in (client.post({"inputs": values}), client.post_lines([{"input": value} for value in values])):
        new_job = client.job_of(answer)
        job = client.wait_until_ended(new_job)
        assert [(each["index"], each["code"]) for each in job["errors"]] == [(3, "invalid_request")]
        assert client.outputs(new_job) == expected


@pytest.mark.leaves_dead_letters
async def test_an_input_of_a_job_that_is_retried_in_vain_is_a_dead_letter(
    cluster: GatewayCluster, tmp_path: Path
) -> None:
    """It runs four times in its entry and four times in a separate one, each time alone at the end; others succeed."""
    batches = tmp_path / "batches"
    cluster.environment["PYTHONPATH"] = str(ROOT)
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(),
        cluster.start_worker(UNAVAILABLE, model_args=json.dumps({"file": str(batches)}), retry_backoff_ms=50),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    client, values = JobClient(gateway), ["a", "b", "!ever", "c", "d"]
    new_job = client.job_of(client.post({"inputs": values}))
    job = client.wait_until_ended(new_job)
    assert (job["status"], job["done"], job["failed"]) == ("done", 4, 1)
    [error] = job["errors"]
    assert (error["index"], error["code"]) == (2, "input_failed")
    assert error["message"].endswith("has the traceback. It was tried again 3 times.")
    assert client.outputs(new_job) == ["a", "b", None, "c", "d"]
    assert batches.read_text().splitlines().count("!ever") == 8
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client_of_redis:
        [(_, letter)] = client_of_redis.xrange(cluster.keys.dead)
    assert b"TimeoutError" in letter[b"error"]


async def test_long_outputs_come_in_shorter_pages(cluster: GatewayCluster) -> None:
    """A page of outputs ends after 32 MiB, whatever its limit, and the next one continues there."""
    client = JobClient(await start(cluster, inputs_per_entry=1, max_input_chars=2_000_000))
    values = [f"{i:08}" + "x" * 1_500_000 for i in range(40)]
    bodies = [client.job_of(client.post({"inputs": values[at : at + 20]})) for at in (0, 20)]
    for new_job, part in zip(bodies, (values[:20], values[20:]), strict=True):
        assert client.wait_until_ended(new_job)["done"] == 20
        assert [output[0][:8] for output in client.outputs(new_job)] == [value[:8] for value in part]
    lines = client.job_of(client.post_lines([{"input": value} for value in values]))
    assert client.wait_until_ended(lines)["done"] == 40
    page = client.get(lines["result_url"] + "?limit=40").json()
    # Read in portions of 1, 2, 4, 4 ... outputs, until these exceed 32 MiB.
    assert (len(page["outputs"]), page["next_url"]) == (23, f"{lines['result_url']}?offset=23&limit=40")
    assert [output[0] for output in client.outputs(lines)] == values


async def test_lines_may_be_as_long_as_the_inputs_of_the_function(cluster: GatewayCluster) -> None:
    """32 lines of 1.4 MB, of which one entry could not hold all, and one of 8 MB; a longer line is refused as such."""
    gateway = await start(cluster)
    client = JobClient(gateway)
    values = [*(f"{i:08}" + "x" * 1_400_000 for i in range(32)), "y" * 8_000_000]
    new_job = client.job_of(client.post_lines([{"input": value} for value in values]))
    job = client.wait_until_ended(new_job)
    assert (job["status"], job["done"], job["failed"]) == ("done", 33, 0)
    assert [output[0] for output in client.outputs(new_job)] == values
    refused = client.post_lines([{"input": 1}, {"input": "x" * 51_000_000}])
    assert (refused.status_code, error_of(refused)["code"]) == (413, "too_large")
    assert "Line 2 is too long: an input has at most 8388608 bytes" in error_of(refused)["message"]
    assert "max_input_bytes of the gateway" in error_of(refused)["message"]


async def test_the_lines_that_a_gateway_holds_are_bounded(cluster: GatewayCluster) -> None:
    """Lines that have arrived but fill no entry yet count among the bodies; once the job exists, others get 202."""
    gateway = await start(cluster, max_bodies_bytes=120_000)
    client = JobClient(gateway)
    line, sent, resumed = b'{"input": "%s"}\n' % (b"x" * 100_000), threading.Event(), threading.Event()

    def slow_lines() -> Iterator[bytes]:
        yield line * 3
        sent.set()
        resumed.wait(60)
        yield line

    slow = asyncio.create_task(asyncio.to_thread(client.post_lines, slow_lines()))
    await asyncio.to_thread(sent.wait, 60)
    for _ in range(20):  # meanwhile the event loop of the gateway reads what was sent before
        assert plain_http.get(f"{gateway.url}/livez").status_code == 200
    refused = client.post_lines([{"input": "y" * 100_000}])
    assert (refused.status_code, error_of(refused)["code"]) == (429, "too_many_bodies")
    resumed.set()
    assert client.wait_until_ended(client.job_of(await slow))["done"] == 4
    assert client.wait_until_ended(client.job_of(client.post_lines([{"input": "y" * 100_000}])))["done"] == 1


async def test_the_error_of_a_large_input_names_the_setting_that_bounds_it(cluster: GatewayCluster) -> None:
    """The worker's limit, where that is lower than the gateway's, for jobs in either form."""
    cluster.environment["PYTHONPATH"] = str(ROOT)
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(ECHO, max_model_input_bytes=1_000))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    client = JobClient(gateway)
    for answer in (
        client.post({"inputs": ["x" * 2_000, 1]}),
        client.post_lines([{"input": "x" * 2_000}, {"input": 1}]),
    ):
        job = client.wait_until_ended(client.job_of(answer))
        assert (job["done"], job["failed"]) == (1, 1)
        assert "over the limit of 1000: send less, or raise the setting max_model_input_bytes" in str(job["errors"])


async def test_what_a_queue_cannot_do_is_refused_before_it_is_accepted(cluster: GatewayCluster) -> None:
    """Texts for a function, and inputs for a model of texts, get a 400 that lists the operations; nothing is stored."""
    gateway, text_worker = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    client = JobClient(gateway)
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    for refused in (
        client.post({"inputs": [1]}),
        client.post_lines([{"input": 1}]),
        client.post_lines([{"input": 1}] * 9_000),
    ):
        assert refused.status_code == 400
        assert "does not offer predict. It offers: embed, embed_all, tokenize, decode." in error_of(refused)["message"]
    assert client.wait_until_ended(client.job_of(client.post({"text": "a"})))["status"] == "done"
    assert await text_worker.stop() == 0
    assert client.post({"inputs": [1]}).status_code == 400, "the gateway remembers what the last worker offered"
    cluster.environment["PYTHONPATH"] = str(ROOT)
    await cluster.start_worker(ECHO)
    answers: list[httpx.Response] = []

    def accepted() -> bool:
        answers.append(client.post({"inputs": [1]}))
        return answers[-1].status_code == 202

    await wait_until(accepted, "the gateway sees the function")
    assert client.wait_until_ended(client.job_of(answers[-1]))["status"] == "done"
    for refused in (client.post({"texts": ["a"]}), client.post_lines(["a"])):
        assert refused.status_code == 400
        assert "does not offer embed. It offers: predict." in error_of(refused)["message"]
    refused = client.post_lines([{"input": 1}], query={"normalize": "true"})
    assert (refused.status_code, "normalize: a function has no such option" in refused.text) == (400, True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": []}, "inputs"),
        ({"inputs": 1}, "inputs"),
        ({"inputs": [1], "texts": ["a"]}, "one of them"),
        ({"input": 1, "inputs": [1]}, "one of them"),
        ({"inputs": [1], "normalize": True}, "normalize"),
        ({"texts": ["a"], "timeout_ms": 1}, "timeout_ms"),
        ({"texts": ["a"], "dimensions": 0}, "dimensions"),
    ],
)
def test_an_invalid_body_is_refused(served: GatewayProcess, body: object, message: str) -> None:
    """The error names the field, also one that no job has."""
    refused = JobClient(served).post(body)
    assert refused.status_code == 400
    assert message in error_of(refused)["message"]


def test_the_name_of_an_unknown_field_is_cut(served: GatewayProcess) -> None:
    """An error does not repeat a name of any length."""
    body = {"text": "a", "n" * 100_000: 1}
    for route, headers in (("/jobs", {}), ("/embed", {"prefer": "respond-async"})):
        refused = plain_http.post(served.url + route, json=body, headers=headers)
        assert refused.status_code == 400
        assert len(error_of(refused)["message"]) < 300
