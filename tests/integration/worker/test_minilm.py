"""The real model through the whole worker: its vectors are those of the library, and torch stays in the engine."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpuworker.models import parse_model
from tests.integration.worker.test_deaths import engines, heartbeats_go_on, new_engine
from tests.integration.worker.worker_cluster import WorkerCluster, vectors_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.model]

WORDS = [
    "queue",
    "batch",
    "vector",
    "engine",
    "lane",
    "deadline",
    "worker",
    "stream",
    "reply",
    "padding",
    "token",
    "model",
    "device",
    "claim",
]
STRANGE = [
    "",
    " ",
    "\u200d\u0301",
    "Ünïcödé ß",
    "日本語のテキスト",
    "\U0001f600 \U0001f468\u200d\U0001f469",
    "a\x00b",
    "ﷺ\n\t",
    "١٢٣",
]


def mixed_texts(number: int) -> list[str]:
    """Returns short, long, strange and over-long texts, each its own; lengths are log-normal, as traffic has them."""
    rng = random.Random(5)
    texts = [f"{strange}{i}" for i, strange in enumerate(STRANGE)]
    texts += [" ".join(rng.choices(WORDS, k=900)) + f" {i}" for i in range(3)]
    while len(texts) < number:
        words = min(200, max(1, round(rng.lognormvariate(2.3, 0.9))))
        texts.append(" ".join(rng.choices(WORDS, k=words)) + f" {len(texts)}")
    rng.shuffle(texts)
    return texts


def entries_of(texts: list[str]) -> list[list[str]]:
    """Returns the texts as entries of 1 to 32 inputs."""
    rng, entries, at = random.Random(6), [], 0
    while at < len(texts):
        size = rng.choice([1, 1, 1, 2, 5, 32])
        entries.append(texts[at : at + size])
        at += size
    return entries


def encoded(texts: list[str]) -> NDArray[np.float32]:
    """Returns what the library itself gives, text by text in its own batches.

    On one thread: several that wait for each other take twice as long where another test has the cores.
    """
    import torch  # noqa: PLC0415 - takes seconds
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - takes seconds

    model = SentenceTransformer(parse_model("minilm").path, device="cpu")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return np.asarray(model.encode(texts, batch_size=16, show_progress_bar=False), dtype=np.float32)
    finally:
        torch.set_num_threads(threads)


def maps(pid: int) -> str:
    """Returns what a process has mapped into its memory."""
    return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")


async def served(cluster: WorkerCluster, texts: list[str]) -> NDArray[np.float32]:
    """Returns the vectors that come of texts in entries of all sizes, in flight together."""
    asked = await cluster.submit_many(entries_of(texts), timeout_ms=120_000)
    return np.concatenate([vectors_of(await cluster.wait_for_reply(each.request_id, 90)) for each in asked])


def made_in(folder: Path) -> dict[Path, int]:
    """Returns the graphs that were made there, and when."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("redbatch/onnx/*/model.onnx")}


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("backend", ["onnx", "openvino"])
async def test_other_runtimes_serve_the_same_vectors(cluster: WorkerCluster, graphs: Path, backend: str) -> None:
    """And an engine that dies is replaced by one that finds the graph where the first has put it."""
    worker = await cluster.start_worker("minilm", backend=backend)
    texts = mixed_texts(40)
    expected = encoded(texts)
    assert np.abs(await served(cluster, texts) - expected).max() <= 1e-5
    made = made_in(graphs)
    assert made
    await new_engine(worker, engines(worker), 1)
    assert np.abs(await served(cluster, texts) - expected).max() <= 1e-5
    assert made_in(graphs) == made
    assert "onnx" not in maps(worker.pid)
    assert "openvino" not in maps(worker.pid)


@pytest.mark.timeout(180)
async def test_vectors_equal_those_of_the_library(cluster: WorkerCluster) -> None:
    """Mixed texts in entries of all sizes, in flight together: each has the vector of its own text."""
    await cluster.start_worker("minilm")
    texts = mixed_texts(300)
    found, expected = await served(cluster, texts), encoded(texts)
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = (found * expected).sum(axis=1, dtype=np.float64) / norms
    print(f"\nleast cosine {cosines.min():.8f}, largest difference {np.abs(found - expected).max():.2e}")  # noqa: T201
    assert found.shape == (300, 384)
    assert cosines.min() >= 0.99999
    assert np.abs(found - expected).max() <= 1e-5
    assert await cluster.is_empty()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
async def test_torch_is_in_the_engine_alone_and_a_new_one_is_soon_ready(cluster: WorkerCluster) -> None:
    """The worker never loads it, the fork server has it, and so an engine that dies is replaced in seconds."""
    worker = await cluster.start_worker("minilm")
    before = vectors_of(await cluster.wait_for_reply((await cluster.submit("a text")).request_id))
    assert "libtorch" not in maps(worker.pid)
    assert all("libtorch" in maps(each.pid) for each in worker.session() if each.pid != worker.pid)
    async with heartbeats_go_on(cluster):
        await new_engine(worker, engines(worker), 1)
    after = vectors_of(await cluster.wait_for_reply((await cluster.submit("a text")).request_id))
    assert np.abs(before - after).max() <= 1e-6, "how each engine lays out its weights may differ"
