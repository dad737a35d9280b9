"""Texts that are longer than the model reads, in chunks, over HTTP, by the real model."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from gpuworker.model_spec import parse_model
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, metric, shared_gateway
from tests.processes import Processes
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.model, pytest.mark.timeout(180)]

LONG = " ".join(f"Sentence {i} is about the number {i * i} and naïve 漢字 🙂." for i in range(120))
SHORT = "Hello, world"
MAX_TOKENS = 256
RUN = "redbatch_inputs_total"

Post = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def minilm(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with MiniLM behind it, which the tests share: its worker takes long to start."""
    cluster = GatewayCluster(Processes(tmp_path_factory.mktemp("minilm")), redis_url, f"minilm-{uuid.uuid4().hex[:8]}")

    async def start() -> GatewayProcess:
        gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("minilm", cores=1))

        def is_ready() -> bool:
            answer = plain_http.post(f"{gateway.url}/embed", json={"text": "a", "input_type": "query"})
            return answer.status_code == 200

        await wait_until(is_ready, "the gateway knows the model")
        return gateway

    with shared_gateway(cluster, start) as gateway:
        yield gateway


@pytest.fixture
def post(minilm: GatewayProcess) -> Post:
    """Posts a body to this gateway."""
    return lambda route, **body: plain_http.post(minilm.url + route, json=body, timeout=120)


def embed(texts: Sequence[str]) -> np.ndarray:
    """Returns the library's vectors."""
    return np.asarray(SentenceTransformer(parse_model("minilm").path, device="cpu").encode(list(texts)))


def weighted_mean(texts: Sequence[str]) -> np.ndarray:
    """Returns the mean of the vectors of these texts before they have length 1, weighted by their tokens."""
    model = SentenceTransformer(parse_model("minilm").path, device="cpu")
    unnormalized = SentenceTransformer(modules=list(model)[:-1], device="cpu")
    weights = [len(model.tokenizer(text)["input_ids"]) for text in texts]
    assert max(weights) <= MAX_TOKENS
    return np.asarray(np.average(unnormalized.encode(list(texts)), axis=0, weights=weights))


async def test_chunks(post: Post) -> None:
    """Each has the vector of its part of the text, which none was cut of; together they are the text."""
    answer = await asyncio.to_thread(post, "/embed", texts=[SHORT, LONG], long_text="chunks")
    assert answer.status_code == 200, answer.text
    assert "x-truncated-inputs" not in answer.headers
    short, long = answer.json()["chunks"]
    assert [(each["start"], each["end"]) for each in short] == [(0, len(SHORT))]
    parts = [LONG[each["start"] : each["end"]] for each in long]
    assert "".join(parts) == LONG
    assert len(parts) > 5
    found = np.array([each["embedding"] for each in (*short, *long)])
    assert np.abs(found - embed([SHORT, *parts])).max() <= 1e-5
    single = (await asyncio.to_thread(post, "/embed", text=LONG, long_text="chunks")).json()["chunks"]
    assert [(each["start"], each["end"]) for each in single] == [(each["start"], each["end"]) for each in long]
    openai = await asyncio.to_thread(
        post, "/v1/embeddings", model="minilm", input=[SHORT, LONG], long_text="chunks", encoding_format="base64"
    )
    assert [(each["index"], each["start"]) for each in openai.json()["data"]] == [
        (0, 0),
        *((1, each["start"]) for each in long),
    ]


async def test_the_mean_of_chunks(post: Post) -> None:
    """It is normalized last; a short text has the vector that it has by itself, and options apply to the mean."""
    chunks = (await asyncio.to_thread(post, "/embed", text=LONG, long_text="chunks")).json()["chunks"]
    mean = weighted_mean([LONG[each["start"] : each["end"]] for each in chunks])
    answer = await asyncio.to_thread(post, "/embed", texts=[LONG, SHORT], long_text="mean")
    assert answer.status_code == 200, answer.text
    expected = [mean / np.linalg.norm(mean), embed([SHORT])[0]]
    assert np.abs(np.array(answer.json()["embeddings"]) - expected).max() <= 1e-5
    cut = await asyncio.to_thread(post, "/embed", text=LONG, long_text="mean", dimensions=64)
    assert np.abs(np.array(cut.json()["embedding"]) - mean[:64] / np.linalg.norm(mean[:64])).max() <= 1e-5
    raw = await asyncio.to_thread(post, "/embed", text=LONG, long_text="mean", normalize=False)
    assert np.abs(np.array(raw.json()["embedding"]) - mean).max() <= 1e-5


async def test_what_else_becomes_of_a_long_text(post: Post) -> None:
    """By default it is cut, and the answer says so; or it is refused; and what chunks do not go with is refused."""

    async def send(route: str = "/embed", **body: Any) -> httpx.Response:  # noqa: ANN401 - JSON
        return await asyncio.to_thread(post, route, **body)

    cut = await send(texts=[SHORT, LONG])
    assert (cut.status_code, cut.headers["x-truncated-inputs"], cut.json()["truncated"]) == (200, "1", [1])
    openai = await send("/v1/embeddings", model="minilm", input=[SHORT, LONG])
    assert openai.json()["usage"]["truncated"] == [1]
    for body, message in (
        ({"texts": [SHORT, LONG], "long_text": "error"}, "the maximum is 256"),
        ({"text": LONG, "long_text": "mean", "on_error": "null"}, "on_error: null does not go with chunks"),
        ({"text": LONG, "long_text": "sum"}, "long_text: "),
    ):
        refused = await send(**body)
        assert (refused.status_code, message in refused.text) == (400, True), refused.text
    ids = await send("/v1/embeddings", model="minilm", input=[101, 102], long_text="chunks")
    assert (ids.status_code, "not for token ids" in ids.text) == (400, True)


async def test_a_request_waits_for_a_worker_that_loads(cluster: GatewayCluster) -> None:
    """What the model reads is not known before: a text would be cut in silence."""
    gateway = await cluster.start_gateway()
    await cluster.start_worker("minilm", cores=1)  # the gateway has accepted requests since
    body = {"text": LONG, "long_text": "mean", "timeout_ms": 60_000}
    answer = await asyncio.to_thread(plain_http.post, f"{gateway.url}/embed", json=body, timeout=90)
    assert answer.status_code == 200, answer.text
    assert np.linalg.norm(answer.json()["embedding"]) == pytest.approx(1, abs=1e-5)
    assert "x-truncated-inputs" not in answer.headers


@pytest.mark.leaves_anything
async def test_the_mean_of_chunks_that_are_partly_cached(cluster: GatewayCluster) -> None:
    """A chunk counts by its tokens, whether its vector is cached or not."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(cache_bytes=2**20), cluster.start_worker("minilm", cores=1))

    def embed_long(text: str, long_text: str) -> Any:  # noqa: ANN401 - JSON
        body = {"text": text, "long_text": long_text}
        answer = plain_http.post(f"{gateway.url}/embed", json=body, timeout=90)
        assert answer.status_code == 200, answer.text
        return answer.json()

    longer = f"{LONG} {SHORT}. {LONG}"
    await asyncio.to_thread(embed_long, LONG, "mean")
    chunks = (await asyncio.to_thread(embed_long, longer, "chunks"))["chunks"]
    mean = weighted_mean([longer[each["start"] : each["end"]] for each in chunks])
    found = (await asyncio.to_thread(embed_long, longer, "mean"))["embedding"]
    assert np.abs(np.array(found) - mean / np.linalg.norm(mean)).max() <= 1e-5


async def test_the_chunks_of_a_text_are_for_all_workers(cluster: GatewayCluster) -> None:
    """One text: while a worker that has run some of its chunks is suspended, another one runs others."""
    settings = {"cores": 1, "max_batch_size": 1, "claim_window": 4, "reclaim_idle_ms": 60_000}
    gateway = await cluster.start_gateway(inputs_per_entry=1)
    workers = await asyncio.gather(*(cluster.start_worker("minilm", **settings) for _ in range(2)))
    await wait_until(lambda: gateway.ready_workers(cluster.queue) == 2, "the gateway sees both workers")
    text = LONG * 12
    body = {"text": text, "long_text": "chunks", "timeout_ms": 60_000}
    sent = asyncio.create_task(asyncio.to_thread(plain_http.post, f"{gateway.url}/embed", json=body, timeout=90))
    try:
        await wait_until(lambda: any(metric(each, RUN) for each in workers), "a worker has run a chunk", poll_s=0.01)
        first, other = sorted(workers, key=lambda each: metric(each, RUN), reverse=True)
        first.signal(signal.SIGSTOP)
        await wait_until(lambda: metric(other, RUN) > 0, "the other worker has run a chunk")
    finally:
        for each in workers:
            each.signal(signal.SIGCONT)
    answer = await sent
    assert answer.status_code == 200, answer.text
    chunks = answer.json()["chunks"]
    assert "".join(text[each["start"] : each["end"]] for each in chunks) == text
    assert sum(metric(each, RUN) for each in workers) == len(chunks) > 50


async def test_a_text_of_few_characters_and_many_tokens(post: Post) -> None:
    """BERT's tokenizer takes Korean syllables apart: nothing is cut, though characters are fewer than tokens."""
    text = "안녕하세요 " * 40
    answer = await asyncio.to_thread(post, "/embed", text=text, long_text="chunks")
    assert answer.status_code == 200, answer.text
    assert "x-truncated-inputs" not in answer.headers
    chunks = answer.json()["chunks"]
    assert len(chunks) > 1
    assert "".join(text[each["start"] : each["end"]] for each in chunks) == text
