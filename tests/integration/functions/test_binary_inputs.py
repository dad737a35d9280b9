"""Binary inputs and large results of functions, with a real gateway and a real worker."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import random
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import redis.asyncio

from tests import plain_http
from tests.integration.functions.test_functions import MODELS, predict, start
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of, metric
from tests.integration.worker.test_large_inputs import mapped_memory, named_memory
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]

PHOTO = random.Random(1).randbytes(4 * 10**6)
"""Random, as the compressed data of a photo is."""

OCTETS, NPY = "application/octet-stream", "application/x-npy"


def as_base64(data: bytes) -> str:
    """Returns bytes in base64."""
    return base64.b64encode(data).decode()


def npy(array: Any) -> bytes:  # noqa: ANN401 - any array
    """Returns an array as a .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def described(data: bytes) -> list[str]:
    """Returns what the model `Describe` says of bytes."""
    return ["bytes", hashlib.sha256(data).hexdigest()]


def post(gateway: GatewayProcess, body: bytes, media_type: str, **headers: str) -> httpx.Response:
    """Sends a body of this media type to /predict."""
    return plain_http.post(f"{gateway.url}/predict", content=body, headers={"content-type": media_type, **headers})


async def test_a_photo_reaches_the_class_in_both_forms(cluster: GatewayCluster) -> None:
    """With the default settings, 4 MB arrive as the same bytes in base64, beside other inputs, and as a body."""
    gateway = await start(cluster, f"{MODELS}:Describe")
    one = predict(gateway, {"input": {"base64": as_base64(PHOTO)}})
    assert (one.status_code, one.json()) == (200, {"output": described(PHOTO)})
    raw = post(gateway, PHOTO, OCTETS)
    assert (raw.status_code, raw.json()) == (200, {"output": described(PHOTO)})
    values = [
        {"base64": as_base64(PHOTO[:-1])},
        7,
        {"base64": ""},
        {"base64": as_base64(PHOTO[1:])},
        {"base64": "", "a": 1},
    ]
    mixed = predict(gateway, {"inputs": values}).json()["outputs"]
    assert mixed == [
        *(described(PHOTO[:-1]), ["int", 7], described(b""), described(PHOTO[1:])),
        ["dict", {"base64": "", "a": 1}],
    ]
    assert post(gateway, b"", OCTETS).json() == {"output": described(b"")}


async def test_arrays_reach_the_class_as_arrays(cluster: GatewayCluster) -> None:
    """Dtype, shape and content of a .npy file arrive unchanged, as a field and as a body."""
    gateway = await start(cluster, f"{MODELS}:Describe")
    array = np.random.default_rng(1).standard_normal((512, 512, 3)).astype(np.float32)
    expected = ["float32", [512, 512, 3], hashlib.sha256(array.tobytes()).hexdigest()]
    assert predict(gateway, {"inputs": [{"npy": as_base64(npy(array))}]}).json() == {"outputs": [expected]}
    assert post(gateway, npy(array), NPY).json() == {"output": expected}


async def test_malformed_binary_inputs_are_400_with_words(cluster: GatewayCluster) -> None:
    """Bad base64, no .npy file, and an array of objects are refused; a partial request keeps its other inputs."""
    gateway = await start(cluster, f"{MODELS}:Describe")
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    for body, words in [
        ({"input": {"base64": "YQ"}}, "input.base64: send a text in base64"),
        ({"inputs": [1, {"npy": 5}]}, "inputs[1].npy: send a text in base64"),
        ({"input": {"npy": as_base64(b"no file")}}, "no array in .npy format"),
        ({"input": {"npy": as_base64(pickled.getvalue())}}, "Python objects"),
        ({"inputs": [1, {"npy": as_base64(b"no file")}]}, "Input 1: The input is no array in .npy format"),
    ]:
        refused = predict(gateway, body)
        assert (refused.status_code, words in error_of(refused)["message"]) == (400, True)
    refused = post(gateway, b"no file", NPY)
    assert (refused.status_code, "no array in .npy format" in error_of(refused)["message"]) == (400, True)
    inputs = [{"base64": "YQ"}, {"base64": "YQ=="}, {"npy": "YQ=="}]
    partial = predict(gateway, {"inputs": inputs, "on_error": "null"}).json()
    assert partial["outputs"] == [None, described(b"a"), None]
    assert [(each["index"], each["code"]) for each in partial["errors"]] == [
        (0, "invalid_request"),
        (2, "invalid_request"),
    ]
    assert post(gateway, b"x", "image/jpeg").status_code == 415
    assert plain_http.post(f"{gateway.url}/embed", content=b"x", headers={"content-type": OCTETS}).status_code == 415


async def test_errors_name_the_setting_to_raise(cluster: GatewayCluster) -> None:
    """An input, a body, and a request over their limits are 413, each with the setting; workers announce their own."""
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(max_input_bytes=50_000, max_predict_body_bytes=100_000, max_queue_bytes=70_000),
        cluster.start_worker(f"{MODELS}:Describe", max_model_input_bytes=40_000),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    assert post(gateway, bytes(40_000), OCTETS).status_code == 200
    several = {"inputs": [{"base64": as_base64(bytes(25_000))}] * 3}
    for refused, setting in [
        (post(gateway, bytes(40_001), OCTETS), "max_model_input_bytes"),
        (post(gateway, bytes(50_001), OCTETS), "max_input_bytes"),
        (post(gateway, bytes(100_001), OCTETS), "max_predict_body_bytes"),
        (plain_http.post(f"{gateway.url}/predict", json=several), "max_predict_body_bytes"),
        (predict(gateway, {"inputs": ["x" * 30_000] * 3}), "max_queue_bytes"),
        (gateway.embed({"text": "x" * 3_000_000}), "max_body_bytes"),
    ]:
        assert (refused.status_code, setting in error_of(refused)["message"]) == (413, True), setting


@pytest.mark.leaves_anything
async def test_one_gateway_serves_functions_with_different_limits(cluster: GatewayCluster) -> None:
    """What the workers of one queue refuse is answered by another queue, whose workers announce no limit."""
    gateway, _, _ = await asyncio.gather(
        cluster.start_gateway(all_queues=True),
        cluster.start_worker(f"{MODELS}:Describe", max_model_input_bytes=1_000),
        cluster.start_worker(f"{MODELS}:Describe", queue=f"{cluster.queue}-wide"),
    )
    for name in (cluster.queue, f"{cluster.queue}-wide"):
        await wait_until(lambda name=name: gateway.ready_workers(name) == 1, f"{name} is ready")  # type: ignore[misc]
    assert post(gateway, bytes(1_001), OCTETS).status_code == 413
    assert post(gateway, bytes(1_000), OCTETS).json() == {"output": described(bytes(1_000))}
    wide = {"x-model": f"{cluster.queue}-wide"}
    assert post(gateway, bytes(1_001), OCTETS, **wide).json() == {"output": described(bytes(1_001))}


async def post_all(
    gateway: GatewayProcess, payloads: Sequence[bytes], sent: list[asyncio.Task[httpx.Response]]
) -> None:
    """Sends each payload as a body, all at once; returns when all are answered. Adds the tasks to `sent`."""
    headers = {"content-type": OCTETS, "x-timeout-ms": "150000"}
    async with plain_http.client(timeout=170, limits=httpx.Limits(max_connections=None)) as client:
        calls = (client.post(f"{gateway.url}/predict", content=each, headers=headers) for each in payloads)
        sent.extend(map(asyncio.create_task, calls))
        await asyncio.gather(*sent)


async def test_a_hundred_photos_fit_into_the_queue(cluster: GatewayCluster, redis_url: str) -> None:
    """With the default bounds of the queue, 100 photos of 4 MB wait in it: 100 tokens, and their bytes once.

    When their cost was counted in characters, 65 photos filled the queue.
    """
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(max_bodies_bytes=10**9, max_in_flight_bytes=2 * 10**9),
        cluster.start_worker(f"{MODELS}:Describe"),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    payloads = [PHOTO[i:] + PHOTO[:i] for i in range(100)]
    sent: list[asyncio.Task[httpx.Response]] = []
    backlog: dict[str, int] = {}

    async def all_wait() -> bool:
        found: Any = await raw.hgetall(cluster.keys.backlog)
        backlog.update({name.decode(): int(value) for name, value in found.items()})
        return backlog.get("inputs") == 100

    async with redis.asyncio.Redis.from_url(redis_url, protocol=2) as raw:
        worker.signal(signal.SIGSTOP)
        try:
            sending = asyncio.create_task(post_all(gateway, payloads, sent))
            await wait_until(all_wait, lambda: f"all photos wait: {backlog}", timeout_s=60)
        finally:
            worker.signal(signal.SIGCONT)
        await sending
        assert await raw.hget(cluster.keys.backlog, "bytes") in (b"0", None)
    answers = [task.result() for task in sent]
    assert [each.json().get("output") for each in answers] == [described(each) for each in payloads]
    assert backlog["tokens"] == 100
    assert 100 * len(PHOTO) <= backlog["bytes"] < 100.1 * len(PHOTO)


async def test_the_bound_in_bytes_refuses_what_does_not_fit(cluster: GatewayCluster) -> None:
    """Of ten photos at once, as many are accepted as fit into max_queue_bytes; the others get 429 and may retry."""
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(max_queue_bytes=3 * len(PHOTO) + 1_000), cluster.start_worker(f"{MODELS}:Describe")
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    sent: list[asyncio.Task[httpx.Response]] = []
    worker.signal(signal.SIGSTOP)
    try:
        sending = asyncio.create_task(post_all(gateway, [PHOTO[i:] for i in range(10)], sent))
        await wait_until(lambda: sum(task.done() for task in sent) == 7, "all photos that do not fit are refused")
        await wait_until(lambda: gateway.metric("redbatch_queue_bytes") > 2 * len(PHOTO), "the metric shows the bytes")
    finally:
        worker.signal(signal.SIGCONT)
    await sending
    answers = [task.result() for task in sent]
    assert Counter(each.status_code for each in answers) == {200: 3, 429: 7}
    assert {error_of(each)["code"] for each in answers if each.status_code == 429} == {"queue_full"}
    assert post(gateway, PHOTO, OCTETS).status_code == 200


async def test_a_class_says_what_its_inputs_cost(cluster: GatewayCluster) -> None:
    """Batches hold up to max_batch_tokens by `cost`; a costlier input runs alone; a cost below 1 fails its input."""
    gateway = await start(cluster, f"{MODELS}:Weighed", max_batch_tokens=100)
    outputs = predict(gateway, {"inputs": [1, *[30.5] * 12, 250]}).json()["outputs"]
    assert outputs[-1] == 250
    assert 30.5 < max(outputs[:-1]) <= 100
    refused = predict(gateway, {"input": 0})
    assert (refused.status_code, "its method cost" in error_of(refused)["message"]) == (500, True)


async def test_costly_inputs_share_a_batch(cluster: GatewayCluster) -> None:
    """Batches of a class with costs are not halved on an idle engine, whatever the unit of the costs is."""
    gateway = await start(cluster, f"{MODELS}:Weighed")
    costs = list(range(900, 916))
    assert predict(gateway, {"inputs": costs}).json()["outputs"] == [sum(costs)] * len(costs)


def filled(sizes: Sequence[int]) -> list[str]:
    """Returns the outputs of the model `Fill`, in base64."""
    return [as_base64(bytes([size % 251]) * size) for size in sizes]


async def test_bytes_come_back_in_base64(cluster: GatewayCluster) -> None:
    """A short output, an empty one, and one of 20 MB, which takes shared memory, have the bytes of the class."""
    gateway = await start(cluster, f"{MODELS}:Fill")
    sizes = [7, 0, 300]
    assert predict(gateway, {"inputs": sizes}).json() == {"outputs": [{"base64": each} for each in filled(sizes)]}
    assert predict(gateway, {"input": 20_000_000}).json() == {"output": {"base64": filled([20_000_000])[0]}}


def shared_bytes(worker: Program) -> list[int]:
    """Returns the bytes that are in the shared memories of a worker."""
    descriptors = Path(f"/proc/{worker.pid}/fd").iterdir()
    return [each.stat().st_blocks * 512 for each in descriptors if "memfd:redbatch" in str(each.readlink())]


async def test_a_large_result_waits_in_shared_memory(cluster: GatewayCluster, redis_url: str) -> None:
    """While the worker is stopped, 20 MB of its engine are there; once it has read them, the memory is free again."""
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(), cluster.start_worker(f"{MODELS}:Fill", model_args='{"batch_s": 2}')
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")

    async def runs() -> bool:
        return bool([key async for key in raw.scan_iter(cluster.keys.begun("*"))])

    async with redis.asyncio.Redis.from_url(redis_url, protocol=2) as raw:
        sending = asyncio.create_task(asyncio.to_thread(predict, gateway, {"input": 15_000_000, "timeout_ms": 60_000}))
        await wait_until(runs, "the input is running")
        worker.signal(signal.SIGSTOP)
        try:
            await wait_until(lambda: max(shared_bytes(worker)) > 20_000_000, lambda: f"{shared_bytes(worker)}")
        finally:
            worker.signal(signal.SIGCONT)
        assert (await sending).json() == {"output": {"base64": filled([15_000_000])[0]}}
    await wait_until(lambda: max(shared_bytes(worker)) < 10_000, lambda: f"{shared_bytes(worker)} are free")


async def test_an_engine_that_dies_with_large_results_leaves_nothing(cluster: GatewayCluster) -> None:
    """If the engine is killed repeatedly while it returns megabytes, all requests are answered, and no memory leaks."""
    gateway, worker = await asyncio.gather(
        cluster.start_gateway(),
        cluster.start_worker(f"{MODELS}:Fill", model_args='{"batch_s": 0.05}', max_batch_size=2, max_attempts=100),
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    before, names = (0, 0), named_memory()
    headers = {"x-timeout-ms": "120000"}
    for round_ in range(4):
        sizes = [5_000_000 + 10 * round_ + i for i in range(10)]
        async with plain_http.client(timeout=150, limits=httpx.Limits(max_connections=None)) as client:
            done = metric(worker, "redbatch_inputs_total")
            sent = [
                asyncio.create_task(client.post(f"{gateway.url}/predict", json={"input": size}, headers=headers))
                for size in sizes
            ]
            await wait_until(lambda done=done: metric(worker, "redbatch_inputs_total") > done, "a batch has run")  # type: ignore[misc]
            deaths = len(worker.log_records("engine died"))
            for server in worker.descendants("redbatch forkserver"):
                for engine in server.children():
                    engine.send_signal(signal.SIGKILL)
            await wait_until(lambda deaths=deaths: len(worker.log_records("engine died")) > deaths, "the engine died")  # type: ignore[misc]
            answers = await asyncio.gather(*sent)
        assert [each.json() for each in answers] == [{"output": {"base64": each}} for each in filled(sizes)]
        before = before if round_ else mapped_memory(worker)
    assert before[0] == 3  # for frames in both directions, and the run table
    await wait_until(lambda: mapped_memory(worker) == before, lambda: f"{mapped_memory(worker)} is {before} again")
    assert named_memory() == names
