"""The real model in a worker: its vectors equal the library's, and only the engine loads torch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpuworker.model_spec import parse_model
from tests.integration.worker.test_deaths import engines, heartbeats_continue, replace_engine
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
UNUSUAL_TEXTS = [
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
    """Returns distinct texts: short, long, unusual and too long; their lengths are log-normal, as in real traffic."""
    rng = random.Random(5)
    texts = [f"{text}{i}" for i, text in enumerate(UNUSUAL_TEXTS)]
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


def encode_with_library(texts: list[str]) -> NDArray[np.float32]:
    """Returns the library's vectors of texts.

    It runs on one thread: several that wait for each other take twice as long if another test uses the cores.
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
    """Returns the memory mappings of a process."""
    return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")


async def encode_with_worker(cluster: WorkerCluster, texts: list[str]) -> NDArray[np.float32]:
    """Returns the vectors of texts that are submitted in concurrent entries of all sizes."""
    requests = await cluster.submit_many(entries_of(texts), timeout_ms=120_000)
    return np.concatenate([vectors_of(await cluster.wait_for_reply(each.request_id, 90)) for each in requests])


def exported_graphs(folder: Path) -> dict[Path, int]:
    """Returns the graphs in a cache folder, with their modification times in nanoseconds."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("redbatch/onnx/*/model.onnx")}


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("backend", ["onnx", "openvino"])
async def test_other_runtimes_serve_the_same_vectors(cluster: WorkerCluster, graphs: Path, backend: str) -> None:
    """Other runtimes give the library's vectors, and an engine that replaces a dead one reuses the exported graph."""
    worker = await cluster.start_worker("minilm", backend=backend)
    texts = mixed_texts(40)
    expected = encode_with_library(texts)
    assert np.abs(await encode_with_worker(cluster, texts) - expected).max() <= 1e-5
    graphs_before = exported_graphs(graphs)
    assert graphs_before
    await replace_engine(worker, engines(worker), 1)
    assert np.abs(await encode_with_worker(cluster, texts) - expected).max() <= 1e-5
    assert exported_graphs(graphs) == graphs_before
    assert "onnx" not in maps(worker.pid)
    assert "openvino" not in maps(worker.pid)


@pytest.mark.timeout(180)
async def test_vectors_equal_the_library(cluster: WorkerCluster) -> None:
    """Each of 300 mixed texts, in concurrent entries of all sizes, gets the library's vector."""
    await cluster.start_worker("minilm")
    texts = mixed_texts(300)
    actual, expected = await encode_with_worker(cluster, texts), encode_with_library(texts)
    norms = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = (actual * expected).sum(axis=1, dtype=np.float64) / norms
    print(f"\nleast cosine {cosines.min():.8f}, largest difference {np.abs(actual - expected).max():.2e}")  # noqa: T201
    assert actual.shape == (300, 384)
    assert cosines.min() >= 0.99999
    assert np.abs(actual - expected).max() <= 1e-5
    assert await cluster.is_empty()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
async def test_only_the_engine_and_its_fork_server_load_torch(cluster: WorkerCluster) -> None:
    """The worker never loads torch; the fork server has loaded it, so a dead engine is replaced in seconds."""
    worker = await cluster.start_worker("minilm")
    before = vectors_of(await cluster.wait_for_reply((await cluster.submit("a text")).request_id))
    assert "libtorch" not in maps(worker.pid)
    assert all("libtorch" in maps(each.pid) for each in worker.session() if each.pid != worker.pid)
    async with heartbeats_continue(cluster):
        await replace_engine(worker, engines(worker), 1)
    after = vectors_of(await cluster.wait_for_reply((await cluster.submit("a text")).request_id))
    assert np.abs(before - after).max() <= 1e-6, "engines may lay out their weights differently"


async def test_a_worker_that_compiles_nothing_leaves_no_temporary_files(
    cluster: WorkerCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch makes a folder for compiled code as it is imported."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    worker = await cluster.start_worker("minilm")
    request = await cluster.submit("a text")
    vectors_of(await cluster.wait_for_reply(request.request_id))
    assert await worker.stop() == 0
    assert list(folder.iterdir()) == []
