"""OpenAI's client, unmodified, with a gateway as its server."""

from __future__ import annotations

import asyncio
import base64
import time
from itertools import pairwise
from typing import Any, Literal

import httpx
import numpy as np
import openai
import pytest
from numpy.typing import NDArray

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, null_vector
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

DOCUMENTS = [f"document {i}: {'word ' * (i % 17)}" for i in range(1_000)]
RAW = {"normalize": False}


def model_of(gateway: GatewayProcess) -> str:
    """Returns the id of the only model that a gateway serves."""
    with openai_at(gateway) as client:
        return client.models.list().data[0].id


def openai_at(gateway: GatewayProcess) -> openai.OpenAI:
    """Returns OpenAI's client for a gateway."""
    http: Any = plain_http.blocking_client(timeout=60)  # the library's type is a fork of httpx
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", http_client=http, max_retries=0)


def async_openai_at(gateway: GatewayProcess, http: Any = None, max_retries: int = 0) -> openai.AsyncOpenAI:  # noqa: ANN401
    """Returns OpenAI's asynchronous client for a gateway."""
    http = http or plain_http.client(timeout=60)
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", http_client=http, max_retries=max_retries)


def unit_vector(text: str) -> NDArray[np.float32]:
    """Returns the null model's vector of a text, scaled to length 1."""
    vector: NDArray[np.float32] = np.frombuffer(null_vector(text), dtype="<f4")
    return np.asarray(vector / np.linalg.norm(vector))


def test_a_thousand_documents(served: GatewayProcess) -> None:
    """With the client's default format, base64, vectors come in order, with length 1, and with the usage."""
    with openai_at(served) as client:
        answer = client.embeddings.create(model=model_of(served), input=DOCUMENTS)
    assert [each.index for each in answer.data] == list(range(1_000))
    actual = np.asarray([each.embedding for each in answer.data])
    assert np.abs(actual - [unit_vector(text) for text in DOCUMENTS]).max() <= 1e-6
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 1_000  # the null model counts one token per text
    assert answer.model == model_of(served)


@pytest.mark.parametrize("form", ["float", "base64"])
def test_both_formats_contain_the_exact_vectors(served: GatewayProcess, form: Literal["float", "base64"]) -> None:
    """Both encoding formats contain the model's vectors, bit for bit."""
    with openai_at(served) as client:
        answer = client.embeddings.create(
            model=model_of(served),
            input=["a", "b"],
            encoding_format=form,
            extra_body=RAW,
        )
    for each, text in zip(answer.data, ["a", "b"], strict=True):
        # A client that requests base64 gets it; if the library chooses the format, it returns numbers.
        vector = np.asarray(each.embedding, dtype="<f4").tobytes() if form == "float" else decode_vector(each.embedding)
        assert vector == null_vector(text)


def decode_vector(embedding: object) -> bytes:
    """Returns the bytes of a base64 vector."""
    assert isinstance(embedding, str)
    return base64.b64decode(embedding)


def test_dimensions_truncate_a_vector(served: GatewayProcess) -> None:
    """A vector that `dimensions` truncates has length 1 again."""
    with openai_at(served) as client:
        answer = client.embeddings.create(model=model_of(served), input="a", dimensions=8, user="any")
    [vector] = [np.asarray(each.embedding) for each in answer.data]
    first = unit_vector("a")[:8]
    assert np.abs(vector - first / np.linalg.norm(first)).max() <= 1e-6


async def test_concurrent_requests(served: GatewayProcess) -> None:
    """With the asynchronous client, 100 concurrent requests with 1,000 documents get their vectors."""
    model = model_of(served)
    parts = [DOCUMENTS[start : start + 10] for start in range(0, 1_000, 10)]
    async with async_openai_at(served) as client:
        answers = await asyncio.gather(*(client.embeddings.create(model=model, input=part) for part in parts))
    for part, answer in zip(parts, answers, strict=True):
        actual = np.asarray([each.embedding for each in answer.data])
        assert np.abs(actual - [unit_vector(text) for text in part]).max() <= 1e-6


def test_the_list_of_models_contains_live_workers(served: GatewayProcess) -> None:
    """A live worker's model is listed under the name of its queue; an unknown model gets a 404 with the list."""
    with openai_at(served) as client:
        [model] = client.models.list().data
        assert client.models.retrieve(model.id) == model
        assert model.owned_by == "redbatch"
        assert abs(model.created - time.time()) < 3_600
        with pytest.raises(openai.NotFoundError, match=model.id) as caught:
            client.models.retrieve("text-embedding-3-small")
        assert caught.value.code == "model_not_found"
        with pytest.raises(openai.NotFoundError, match=model.id) as caught:
            client.embeddings.create(model="text-embedding-3-small", input="a")
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
        assert caught.value.request_id


def test_a_request_may_use_the_models_name(served: GatewayProcess) -> None:
    """A request may use the model's name, of which the queue's name is a slug."""
    with openai_at(served) as client:
        assert client.embeddings.create(model="null", input="a").model == "null"


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"input": ""}, "input", "none of them empty"),
        ({"input": ["a", ""]}, "input", r"input\[1\] is empty"),
        ({"input": ["a"] * 2_049}, "input", "2049 inputs are over the limit of 2048"),
        ({"dimensions": 0}, "dimensions", "a whole number from 1 to"),
        ({"dimensions": 385}, None, "have 384, not 385"),
        ({"extra_body": {"prompt_name": "query"}}, None, "no prompts"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_unsupported_options_are_a_bad_request(
    served: GatewayProcess, fields: dict[str, Any], param: str | None, message: str
) -> None:
    """An error of the gateway or of the model is a BadRequestError of the client, with type and parameter."""
    arguments: dict[str, Any] = {"model": "null", "input": "a"} | fields
    with openai_at(served) as client, pytest.raises(openai.BadRequestError, match=message) as caught:
        client.embeddings.create(**arguments)
    assert (caught.value.type, caught.value.param) == ("invalid_request_error", param)


async def test_before_a_worker_is_known_any_model_may_exist(cluster: GatewayCluster) -> None:
    """Before the first worker is known, an unknown model gets no_worker, to be retried; afterwards, a NotFoundError."""
    gateway = await cluster.start_gateway(worker_grace_s=0)
    async with async_openai_at(gateway) as client:
        assert (await client.models.list()).data == []
        with pytest.raises(openai.InternalServerError) as caught:
            await client.embeddings.create(model="sentence-transformers/any", input="a")
        assert caught.value.code == "no_worker"
        await cluster.start_worker()
        await wait_until(lambda: gateway.ready_workers(cluster.queue) == 1, "the gateway sees the worker")
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model="sentence-transformers/any", input="a")
        assert (await client.models.retrieve("null")).id == "null"


def test_token_ids_are_inputs(served: GatewayProcess) -> None:
    """One list of token ids or several are inputs; the null model hashes their bytes."""
    ids = [101, 7592, 102]
    with openai_at(served) as client:
        one = client.embeddings.create(model="null", input=ids)
        two = client.embeddings.create(model="null", input=[ids, [5]])
    assert len(one.data) == 1
    assert two.data[0].embedding == one.data[0].embedding
    assert two.data[1].embedding != one.data[0].embedding


def test_an_unknown_path_is_a_not_found_error(served: GatewayProcess) -> None:
    """An unknown path raises the client's NotFoundError with a code."""
    with openai_at(served) as client, pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="null", prompt="a")
    assert caught.value.code == "not_found"


async def test_the_client_retries_after_the_requested_time(cluster: GatewayCluster, fake_heartbeat: None) -> None:
    """While the queue is full the client gets 429s with `retry-after-ms`, waits at least that time, and succeeds."""
    gateway = await cluster.start_gateway(max_queue_inputs=1)
    responses: list[tuple[float, int, float]] = []

    async def record(response: httpx.Response) -> None:
        after_s = float(response.headers.get("retry-after-ms", 0)) / 1000
        responses.append((time.monotonic(), response.status_code, after_s))

    async with plain_http.client(timeout=60) as first, plain_http.client(timeout=60) as http:
        holder = asyncio.create_task(gateway.send(first, "fills the queue", x_timeout_ms="60000"))
        await wait_until(lambda: gateway.metric("redbatch_queue_inputs") == 1, "the queue is full")
        http.event_hooks["response"].append(record)
        client = async_openai_at(gateway, http, max_retries=200)
        request = asyncio.create_task(client.embeddings.create(model=cluster.queue, input="a", extra_body=RAW))
        await wait_until(lambda: len(responses) >= 2, "the request was refused twice")
        await cluster.start_worker()
        answer = await request
        assert (await holder).status_code == 200
    assert np.asarray(answer.data[0].embedding, dtype="<f4").tobytes() == null_vector("a")
    assert {status for _, status, _ in responses[:-1]} == {429}
    assert responses[-1][1] == 200
    waits = [(after_s, later - at) for (at, _, after_s), (later, _, _) in pairwise(responses)]
    assert all(waited >= after_s > 0 for after_s, waited in waits)
