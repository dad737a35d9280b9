"""A user's function behind POST /predict, with a real gateway and a real worker, and the example in docs."""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests import plain_http
from tests.gpu_driver import FAKE_DRIVER
from tests.integration.functions.conftest import EXAMPLES
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of, log_lines, metric
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

MODELS = "tests.integration.functions.function_models"


async def start(cluster: GatewayCluster, name: str, **settings: object) -> GatewayProcess:
    """Starts a gateway and a worker with a model; returns when both are ready."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(name, **settings))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    return gateway


def predict(gateway: GatewayProcess, body: object) -> httpx.Response:
    """Sends a request to /predict."""
    return plain_http.post(f"{gateway.url}/predict", json=body, timeout=60)


async def test_inputs_and_outputs_are_any_json(cluster: GatewayCluster) -> None:
    """Null, booleans, numbers, long texts and nested values come back unchanged, one by one and many in order."""
    gateway, worker = await asyncio.gather(cluster.start_gateway(), cluster.start_worker(f"{MODELS}:Echo"))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    values: list[Any] = [None, True, 7, -1.5, "", "é \U0001f600", [], {}, {"a": [1, {"b": None}]}, "x" * 10_000]
    for value in values:
        answer = predict(gateway, {"input": value})
        assert (answer.status_code, answer.json()) == (200, {"output": [value, 1]})
    [ready] = [each for each in log_lines(worker) if each["msg"] == "engine ready"]
    assert "dim" not in ready, "what only models of texts have"
    assert plain_http.get(f"{gateway.url}/info").json()["model_type"] == {"function": {}}
    mixed = values + list(range(200))
    answer = predict(gateway, {"inputs": mixed})
    assert [output[0] for output in answer.json()["outputs"]] == mixed
    assert int(answer.headers["x-batch-size"]) > 1
    assert predict(gateway, {"inputs": [5], "timeout_ms": 5000, "priority": "bulk"}).json() == {"outputs": [[5, 1]]}


async def test_an_input_that_fails_does_not_fail_its_batch(cluster: GatewayCluster) -> None:
    """If any of the three methods raises for an input, the other inputs of the batch get their outputs."""
    gateway = await start(cluster, f"{MODELS}:Echo", model_args='{"batch_s": 0.05}')
    bad = {"!refuse": 400, "!preprocess": 500, "!transform": 500, "!less": 500, "!postprocess": 500, "!long": 500}
    async with plain_http.client(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        inputs = [*bad, *range(40)]
        answers = await asyncio.gather(
            *(client.post(f"{gateway.url}/predict", json={"input": each}) for each in inputs)
        )
    assert [each.status_code for each in answers] == [*bad.values(), *[200] * 40]
    assert [each.json()["output"][0] for each in answers[len(bad) :]] == list(range(40))
    assert error_of(answers[0])["message"] == "Not this one."
    assert (
        error_of(answers[1])["message"]
        == "The model failed on this input (RuntimeError): the worker's log has the traceback."
    )
    assert "41 MiB, over the limit of 32 MiB" in error_of(answers[5])["message"]
    answer = predict(gateway, {"inputs": [1, "!refuse", 2, "!transform"], "on_error": "null"}).json()
    assert [output and output[0] for output in answer["outputs"]] == [1, None, 2, None]
    assert [(each["index"], each["code"]) for each in answer["errors"]] == [(1, "invalid_request"), (3, "input_failed")]
    del bad["!long"]
    for position, each in enumerate(bad, start=40):  # the first entry has 32 inputs
        failed = predict(gateway, {"inputs": [*range(position), each, -1]})
        named = error_of(failed)["message"].partition(":")[0]
        assert (failed.status_code, named) == (bad[each], f"Input {position}")


async def test_an_input_that_fails_changes_no_output_of_its_batch(cluster: GatewayCluster) -> None:
    """Of a class that changes its inputs in place: the others run again, with the values that their clients sent."""
    gateway = await start(cluster, f"{MODELS}:Prices", model_args='{"batch_s": 0.1}')
    rows = [{"name": f" {number} ", "price": number} for number in range(30)]
    async with plain_http.client(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        answers = await asyncio.gather(
            *(
                client.post(f"{gateway.url}/predict", json={"input": each})
                for each in [*rows[:15], {"name": None, "price": 1}, *rows[15:]]
            )
        )
    assert answers.pop(15).status_code == 500
    assert [each.json() for each in answers] == [{"output": [str(number), 100 * number]} for number in range(30)]


async def test_methods_of_whole_batches_see_the_batch(cluster: GatewayCluster) -> None:
    """`postprocess` gets what `preprocess` and `transform` returned for the batch; inputs that fail, fail alone."""
    gateway = await start(cluster, f"{MODELS}:Batches")
    values = ["a", "bb", "ccc"]
    lengths, sums = zip(*predict(gateway, {"inputs": values}).json()["outputs"], strict=True)
    assert (lengths, max(sums)) == ((1, 2, 3), 6)
    bad = {"!refuse": 400, "!preprocess": 500, "thirteen chars": 200, "13 characters": 500}
    async with plain_http.client(timeout=60) as client:
        inputs = [*bad, *("x" * n for n in range(1, 12))]
        answers = await asyncio.gather(
            *(client.post(f"{gateway.url}/predict", json={"input": each}) for each in inputs)
        )
    assert [each.status_code for each in answers] == [*bad.values(), *[200] * 11]
    assert [each.json()["output"][0] for each in answers[len(bad) :]] == list(range(1, 12))
    assert error_of(answers[0])["message"] == "Not this one."
    assert "postprocess returned 0 results for 1 input" in error_of(answers[3])["message"]


async def test_an_input_that_kills_the_engine_in_a_batchs_preprocess_fails_only_itself(
    cluster: GatewayCluster,
) -> None:
    """Also if the batch is prepared while another runs: its entries count as started."""
    args = '{"deadly": "!kill"}'
    gateway = await start(cluster, f"{MODELS}:Batches", model_args=args, max_dead_letters=0, max_batch_size=4)
    async with plain_http.client(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        inputs = [*("x" * n for n in range(20, 40)), "!kill", *("y" * n for n in range(20, 40))]
        answers = await asyncio.gather(
            *(client.post(f"{gateway.url}/predict", json={"input": each, "timeout_ms": 50_000}) for each in inputs)
        )
    assert [each.status_code for each in answers] == [*[200] * 20, 500, *[200] * 20]


@pytest.mark.parametrize("method", ["preprocess", "transform"])
async def test_an_input_that_kills_the_engine_fails_only_itself(cluster: GatewayCluster, method: str) -> None:
    """An input that kills the engine, before or in its batch, fails at the third attempt; others get outputs."""
    args = f'{{"batch_s": 0.1, "deadly": "!kill", "dies_in": "{method}"}}'
    gateway = await start(cluster, f"{MODELS}:Echo", model_args=args, max_dead_letters=0)
    async with plain_http.client(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        inputs = ["!kill", *range(20)]
        answers = await asyncio.gather(
            *(client.post(f"{gateway.url}/predict", json={"input": each, "timeout_ms": 50_000}) for each in inputs)
        )
    assert [each.status_code for each in answers] == [500, *[200] * 20]
    assert error_of(answers[0])["code"] == "input_failed"


@pytest.mark.parametrize("messages", ["off", "log", "client"])
async def test_an_exception_is_logged_and_counted(cluster: GatewayCluster, messages: str) -> None:
    """The log has its type and frames, the metric its type; its message goes only where the setting allows."""
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(f"{MODELS}:Echo", error_messages=messages)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    for _ in range(2):
        text = error_of(predict(gateway, {"input": "!preprocess"}))["message"]
    assert ("(RuntimeError)" in text, "cannot read !preprocess" in text) == (messages != "client", messages == "client")
    await wait_until(lambda: metric(worker, 'redbatch_model_errors_total{type="RuntimeError"}') == 2, "it is counted")
    [line] = [each for each in log_lines(worker) if each["msg"] == "the model raised an exception"]
    assert (line["service"], line["level"], line["error"]) == ("engine", "error", "RuntimeError")
    assert re.search(r"function_models\.py\W.*preprocess_input", line["exception"])
    assert ("cannot read !preprocess" in worker.output) is (messages != "off")
    assert ("--error-messages log" in line.get("message", "")) is (messages == "off")
    [refused] = gateway.program.log_records("request failed")
    assert (refused["code"], "message" in refused) == ("input_failed", False), "a message may quote the input"
    [starts] = worker.log_records("worker starts")
    expected = ("RuntimeError", starts["worker"], "the log of this worker")
    assert (refused["error"], refused["worker"], refused["see"]) == expected


@pytest.mark.leaves_dead_letters
async def test_an_input_is_tried_again_and_then_is_a_dead_letter(cluster: GatewayCluster) -> None:
    """The exception is one that the class names; a neighbour is answered meanwhile, and a later attempt may succeed."""
    settings = {"model_args": '{"times": {"twice": 2, "ever": 99}}', "retry_backoff_ms": 400, "max_batch_wait_ms": 50}
    gateway = await start(cluster, f"{MODELS}:Passing", **settings)
    async with plain_http.client(timeout=60) as client:
        inputs = ["ever", "twice", "never"]
        answers = await asyncio.gather(
            *(client.post(f"{gateway.url}/predict", json={"input": each}) for each in inputs)
        )
        assert [each.status_code for each in answers] == [500, 200, 200]
        assert error_of(answers[0])["message"].endswith("has the traceback. It was tried again 3 times.")
        [failed] = gateway.program.log_records("request failed")
        assert (failed["error"], failed["see"]) == ("TimeoutError", "redbatch dead list")
        late = await client.post(f"{gateway.url}/predict", json={"input": "ever", "timeout_ms": 1_100})
        assert (late.status_code, "tried again 1 time." in error_of(late)["message"]) == (500, True)
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client_of_redis:
        [(_, letter)] = client_of_redis.xrange(cluster.keys.dead)
    assert b"TimeoutError" in letter[b"error"]
    assert letter[b"attempts"] == b"4", "the first run and three retries"


async def test_an_engine_whose_inputs_wait_for_a_retry_does_not_hang(cluster: GatewayCluster) -> None:
    """Its silence is longer than the time after which a silent engine with work is killed."""
    settings = {"model_args": '{"times": {"twice": 2}}', "retry_backoff_ms": 1_200, "max_retries": 2}
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(f"{MODELS}:Passing", engine_hang_s=1, **settings)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    assert predict(gateway, {"input": "never"}).status_code == 200, "from the first batch on the time is known"
    assert predict(gateway, {"input": "twice"}).json() == {"output": "twice"}
    assert metric(worker, "redbatch_engine_hangs_total") == 0


async def test_an_input_that_hangs_is_given_up_soon(cluster: GatewayCluster) -> None:
    """Each new engine is killed as soon as the one before: the worker knows how long batches take."""
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(f"{MODELS}:Echo", engine_hang_s=0.5, max_dead_letters=0)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    assert predict(gateway, {"input": 1}).status_code == 200
    answer = await asyncio.to_thread(predict, gateway, {"input": "!hang", "timeout_ms": 50_000})
    assert (answer.status_code, error_of(answer)["code"]) == (500, "input_failed")
    hung = (
        r"a batch with this input ran for \d+\.\d s, until a limit of (\d+\.\d) s ended it. If an input may take that "
        "long, raise engine_hang_s"
    )
    limit = re.search(hung, error_of(answer)["message"])
    assert limit is not None
    assert float(limit[1]) >= 0.5
    assert metric(worker, "redbatch_engine_hangs_total") == 3


async def test_an_input_that_hangs_past_its_deadline_is_no_dead_letter(cluster: GatewayCluster) -> None:
    """Its gateway answers 504 and cancels it; the engine is killed at the limit all the same."""
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(f"{MODELS}:Echo", engine_hang_s=1)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    assert predict(gateway, {"input": 1}).status_code == 200
    answer = await asyncio.to_thread(predict, gateway, {"input": "!hang", "timeout_ms": 1_500})
    assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
    await wait_until(lambda: metric(worker, "redbatch_engine_hangs_total") >= 1, "the engine was killed")
    assert predict(gateway, {"input": 2}).status_code == 200
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client_of_redis:
        assert client_of_redis.xlen(cluster.keys.dead) == 0


async def test_processes_that_a_function_forks_do_not_hide_the_engines_death(cluster: GatewayCluster) -> None:
    """Forked processes do not keep the engine's socket open, so its death is detected, and the next engine serves."""
    gateway = await start(cluster, f"{MODELS}:Forking")
    for _ in range(2):
        [square, engine] = predict(gateway, {"input": 7}).json()["output"]
        assert square == 49
        os.kill(engine, signal.SIGKILL)
    assert predict(gateway, {"input": 8}).json()["output"][0] == 64


async def test_arrays_are_returned_as_lists(cluster: GatewayCluster) -> None:
    """A function may return its results as one array instead of a list; they come out as lists."""
    gateway = await start(cluster, f"{MODELS}:Outer")
    answer = predict(gateway, {"inputs": [[1, 2], [3, 4.5]]}).json()
    assert answer["outputs"] == [[[1, 2], [2, 4]], [[9, 13.5], [13.5, 20.25]]]


@pytest.mark.parametrize(("span", "visible"), [(True, {"0,1"}), (False, {"0", "1"})])
async def test_one_engine_spans_all_gpus_or_each_has_one(
    cluster: GatewayCluster, tmp_path: Path, span: bool, visible: set[str]
) -> None:
    """What the class sees in the variable that every GPU library reads."""
    (tmp_path / "pynvml.py").write_text(FAKE_DRIVER)
    cluster.environment["PYTHONPATH"] = f"{tmp_path}:{cluster.environment['PYTHONPATH']}"
    gateway = await start(cluster, f"{MODELS}:Environment", devices="0,1", span=span)
    await wait_until(lambda: gateway.ready_workers(cluster.queue) == len(visible), "each engine is ready")
    seen: set[str] = set()
    while seen != visible:
        outputs = predict(gateway, {"inputs": ["CUDA_VISIBLE_DEVICES"]}).json()["outputs"]
        assert set(outputs) <= visible
        seen |= set(outputs)


async def test_requests_for_embeddings_to_a_function_are_refused(cluster: GatewayCluster) -> None:
    """The error of /embed and /tokenize names POST /predict."""
    gateway = await start(cluster, f"{MODELS}:Outer")
    refused = gateway.embed({"text": "a"})
    assert (refused.status_code, "POST /predict" in error_of(refused)["message"]) == (400, True)
    refused = plain_http.post(f"{gateway.url}/tokenize", json={"inputs": "a"})
    assert refused.status_code == 424
    assert "POST /predict" in refused.json()["error"]


async def test_predictions_of_an_embedding_model_are_refused(cluster: GatewayCluster) -> None:
    """The error of /predict names POST /embed, because the null model returns vectors and no outputs."""
    gateway = await start(cluster, "null")
    refused = predict(gateway, {"input": "a"})
    assert (refused.status_code, "POST /embed" in error_of(refused)["message"]) == (400, True)


COLD = """class Model:
    def warmup(self): raise ValueError("no warmth")
    def transform(self, values): return values
"""


@pytest.mark.parametrize(
    ("name", "model_args", "message", "place"),
    [
        ("nowhere_at_all:Model", "", "there is no module nowhere_at_all: install it", ""),
        (f"{MODELS}:Missing", "", "has no attribute 'Missing': it has Echo, ", ""),
        (f"{MODELS}:Incomplete", "", "has no transform: write transform(self, inputs), which", ""),
        (f"{MODELS}:Coroutine", "", "has an async transform, which nothing would await: write it without async", ""),
        (f"{MODELS}:Outer", '{"size": 3}', "cannot be constructed: TypeError", "TypeError: Outer"),
        (f"{MODELS}:FailingConstructor", "", "constructed: OSError: there are no weights", "models.py.*, in __init__"),
        ("cold:Model", "", "its warmup() failed: ValueError: no warmth", "cold.py.*, line 2, in warmup"),
        ("broken:Model", "", "imported: ZeroDivisionError", "broken.py.*, line 2, in <module>"),
        ("misspelt:Model", "", "imported: SyntaxError", "misspelt.py.*, line 1"),
        ("incomplete:Model", "", "at_all: incomplete needs it: install it", "incomplete.py.*, line 1, in <module>"),
    ],
)
async def test_a_function_that_cannot_be_loaded_ends_the_worker(
    cluster: GatewayCluster, tmp_path: Path, name: str, model_args: str, message: str, place: str
) -> None:
    """The worker ends with exit code 2 and a line with the cause, after the traceback of what the class raised."""
    (tmp_path / "broken.py").write_text("class Model: ...\n1 / 0\n")
    (tmp_path / "cold.py").write_text(COLD)
    (tmp_path / "misspelt.py").write_text("klass Model: ...\n")
    (tmp_path / "incomplete.py").write_text("import nowhere_at_all\n")
    environment = cluster.env(model=name, model_args=model_args)
    environment["PYTHONPATH"] += f":{tmp_path}"
    program = await cluster.processes.start("worker", "gpuworker", environment)
    assert await program.wait_until_ended(timeout_s=60) == 2
    [cause] = program.log_records("the model cannot be served")
    assert message in cause["reason"]
    assert program.output.splitlines()[-1].count(message) == 1
    traces = program.log_records("the class cannot be made")
    assert [name] * bool(place) == [each["model"] for each in traces]
    for each in traces:
        assert re.search(place, each["exception"])
        assert "gpuworker/" not in each["exception"], "only the user's frames"


def test_the_example_calls_nothing_slow_fast() -> None:
    """On a busy machine a way may take longer than the first one: that is not 0.7 times as fast."""
    compare = runpy.run_path(str(EXAMPLES / "squares.py"))["compare"]
    assert compare(10.0, 0.05).split() == ["200.0", "times", "as", "fast"]
    assert compare(1.0, 1.0).split() == ["1.0", "times", "as", "fast"]
    assert compare(7.0, 10.0).strip() == "1.4 times as long: this machine is busy, so measure again"


async def test_the_example_is_correct_and_runs_in_batches(cluster: GatewayCluster) -> None:
    """The example of the docs runs unchanged: it checks the squares and their order, and prints the time of each way.

    One by one, each number is a separate batch, after the wait that the article has too; in one request they share a
    batch, which that wait has time to fill.
    """
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker("squares:Squares", max_batch_size=200, max_batch_wait_ms=100)
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    example = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-P", str(EXAMPLES / "squares.py"), gateway.url, "--numbers", "30"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (example.returncode, example.stderr.count("round 5 of 5")) == (0, 2), example.stderr
    pattern = r"^(one by one|each at once|in one request) +[\d.]+ s +[\d.]+ times as fast$"
    assert re.findall(pattern, example.stdout, re.MULTILINE) == ["one by one", "each at once", "in one request"]
    assert metric(worker, 'redbatch_batch_size_bucket{le="1.0"}') >= 30
    batches, small = (metric(worker, f'redbatch_batch_size_bucket{{le="{size}"}}') for size in ("+Inf", "16.0"))
    assert batches > small
