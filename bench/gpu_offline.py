"""Runs a model offline on a GPU and prints how fast: `python -m bench.gpu_offline PATH DEVICE TEXTS MIX ...`.

Imports torch. By `SentenceTransformer.encode` at several batch sizes, in the format that the engine takes; and by the
engine's own backend in batches of its own size, whose vectors are compared first.

`python -m bench.gpu_offline --make PATH` makes a base-size model with random weights instead: twelve layers of 768, as
BERT's, which take the time of trained ones.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from transformers import BertConfig, BertModel

from bench.limit import sorted_batches
from gpuworker.backends.base import Backend, load_backend
from gpuworker.backends.loading import DTYPES
from gpuworker.backends.equivalence import TOLERANCE, distance
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.models import parse_model
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import built_in
from shared.process.logs import configure_logging

MAKE = "--make"
MAX_BATCH_SIZE = 1_024
"""As that of the worker that is served (bench.gpu)."""

ENCODE_SIZES = (64, 256, 1_024)
CHECKED_TEXTS, CHECKED_BATCH = 256, 16
LEAST_S = 2.0
SEED = 1

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector

Way = Callable[[Sequence[str]], None]


def main(arguments: Sequence[str]) -> None:
    """Measures, and prints texts a second by mix and way as JSON."""
    if arguments[0] == MAKE:
        make(arguments[1])
        return
    path, device, number, *mixes = arguments
    configure_logging("offline", "error")  # what this prints is read
    options = EngineOptions.of(WorkerSettings(model=path, device=device))
    backend = load_backend(parse_model(path), options)
    model = SentenceTransformer(parse_model(path).path, device=device, model_kwargs={"dtype": DTYPES[backend.dtype]})
    found = {}
    for mix in mixes:
        texts = [text for (text,) in built_in(mix, SEED, 1)][: int(number)]
        check(backend, model, texts[:CHECKED_TEXTS])
        ways: dict[str, Way] = {f"encode, {size} texts": partial(_encode, model, size) for size in ENCODE_SIZES}
        ways["engine, packed" if backend.packs else "engine, padded"] = partial(_run_sorted, backend)
        found[mix] = {how: rate(way, texts) for how, way in ways.items()}
    sys.stdout.write(json.dumps({"dtype": backend.dtype, "texts_per_s": found}))


def check(backend: Backend, model: SentenceTransformer, texts: Sequence[str]) -> None:
    """Fails unless the engine's vectors, of batches that run at the same time, are those of `encode`."""
    expected = model.encode(list(texts), show_progress_bar=False)
    encoded = backend.tokenize(texts)
    batches = [range(at, min(at + CHECKED_BATCH, len(texts))) for at in range(0, len(texts), CHECKED_BATCH)]

    def run(batch: Sequence[int]) -> Vector:
        return np.asarray(backend.run(backend.collate([encoded[i] for i in batch]), alone=False))

    with ThreadPoolExecutor(2) as pool:
        found = np.concatenate(list(pool.map(run, batches)))
    far = distance(found, expected)
    if not far <= TOLERANCE[DTYPES[backend.dtype]]:
        sys.exit(f"the engine's vectors differ from those of encode by {far:.2g} of 1")


def make(path: str) -> None:
    """Writes a base-size model with random weights and the small one's tokenizer to a folder."""
    small = SentenceTransformer(parse_model("minilm").path, device="cpu")
    small.save(path)
    torch.manual_seed(SEED)
    tokenizer = small.tokenizer
    BertModel(BertConfig(vocab_size=len(tokenizer))).save_pretrained(path)
    transformer = Transformer(path, max_seq_length=small.max_seq_length)
    SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension()), Normalize()]).save(path)


def rate(way: Way, texts: Sequence[str]) -> float:
    """Returns texts a second: after a round to warm up, as many rounds as take long enough."""
    way(texts)
    began, rounds = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < LEAST_S:
        way(texts)
        rounds += 1
    return rounds * len(texts) / took


def _encode(model: SentenceTransformer, size: int, texts: Sequence[str]) -> None:
    model.encode(list(texts), batch_size=size, show_progress_bar=False)


def _run_sorted(backend: Backend, texts: Sequence[str]) -> None:
    encoded = backend.tokenize(texts)
    batches = sorted_batches([each.tokens for each in encoded], backend.max_batch_tokens, MAX_BATCH_SIZE)

    def run(batch: Sequence[int]) -> None:
        backend.run(backend.collate([encoded[i] for i in batch]), alone=False)

    with ThreadPoolExecutor(backend.runners) as pool:
        for _ in pool.map(run, batches):
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
