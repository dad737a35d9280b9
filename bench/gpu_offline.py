"""Runs a model offline on a GPU and prints its throughput: `python -m bench.gpu_offline PATH DEVICE TEXTS MIX ...`.

Imports torch. The texts run by `SentenceTransformer.encode` at several batch sizes, in the engine's number format; and
on the engine's backend at its batch size, after a check of its vectors. Both tokenize with the threads that the backend
sets for a GPU, which are those that `encode` has by default. As in the engine, batches are collated ahead.

`python -m bench.gpu_offline --make PATH` writes a base-size model with random weights instead: twelve layers of 768, as
in BERT, which take as long as trained ones.
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
from gpuworker.backends.base import Backend
from gpuworker.backends.equivalence import TOLERANCE, distance
from gpuworker.backends.precision import DTYPES
from gpuworker.backends.selection import load_backend
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.model_spec import parse_model
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import built_in_texts
from shared.process.logs import configure_logging

MAKE = "--make"
MAX_BATCH_SIZE = 1_024
"""The same as that of the served worker (bench.gpu)."""

ENCODE_SIZES = (64, 256, 1_024)
CHECKED_TEXTS, CHECKED_BATCH = 256, 16
MIN_S = 2.0
SEED = 1

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector

Method = Callable[[Sequence[str]], None]


def main(arguments: Sequence[str]) -> None:
    """Measures, and prints texts per second by mix and method as JSON."""
    if arguments[0] == MAKE:
        make(arguments[1])
        return
    path, device, number, *mixes = arguments
    configure_logging("offline", "error")  # stdout is parsed
    options = EngineOptions.from_settings(WorkerSettings(model=path, device=device))
    backend = load_backend(parse_model(path), options)
    model = SentenceTransformer(parse_model(path).path, device=device, model_kwargs={"dtype": DTYPES[backend.dtype]})
    rates = {}
    for mix in mixes:
        texts = [text for (text,) in built_in_texts(mix, SEED, 1)][: int(number)]
        check(backend, model, texts[:CHECKED_TEXTS])
        methods: dict[str, Method] = {f"encode, {size} texts": partial(_encode, model, size) for size in ENCODE_SIZES}
        methods["engine, packed" if backend.packs else "engine, padded"] = partial(_run_sorted, backend)
        rates[mix] = {name: rate(method, texts) for name, method in methods.items()}
    sys.stdout.write(json.dumps({"dtype": backend.dtype, "texts_per_s": rates}))


def check(backend: Backend, model: SentenceTransformer, texts: Sequence[str]) -> None:
    """Exits unless the engine's vectors, from concurrent batches, are those of `encode` within the tolerance."""
    expected = model.encode(list(texts), show_progress_bar=False)
    encoded = backend.tokenize(texts)
    batches = [range(at, min(at + CHECKED_BATCH, len(texts))) for at in range(0, len(texts), CHECKED_BATCH)]

    def run(batch: Sequence[int]) -> Vector:
        return np.asarray(backend.run(backend.collate([encoded[i] for i in batch]), exclusive=False))

    with ThreadPoolExecutor(2) as pool:
        vectors = np.concatenate(list(pool.map(run, batches)))
    off_by = distance(vectors, expected)
    if not off_by <= TOLERANCE[DTYPES[backend.dtype]]:
        sys.exit(f"the engine's vectors differ from those of encode by {off_by:.2g} of 1")


def make(path: str) -> None:
    """Writes a base-size model with random weights and MiniLM's tokenizer to a folder."""
    small = SentenceTransformer(parse_model("minilm").path, device="cpu")
    small.save(path)
    torch.manual_seed(SEED)
    tokenizer = small.tokenizer
    BertModel(BertConfig(vocab_size=len(tokenizer))).save_pretrained(path)
    transformer = Transformer(path, max_seq_length=small.max_seq_length)
    SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension()), Normalize()]).save(path)


def rate(method: Method, texts: Sequence[str]) -> float:
    """Returns texts per second: a warm-up round, then rounds for at least MIN_S."""
    method(texts)
    began, rounds = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < MIN_S:
        method(texts)
        rounds += 1
    return rounds * len(texts) / took


def _encode(model: SentenceTransformer, size: int, texts: Sequence[str]) -> None:
    model.encode(list(texts), batch_size=size, show_progress_bar=False)


def _run_sorted(backend: Backend, texts: Sequence[str]) -> None:
    encoded = backend.tokenize(texts)
    batches = sorted_batches([each.tokens for each in encoded], backend.max_batch_tokens, MAX_BATCH_SIZE)

    def collate(batch: Sequence[int]) -> object:
        return backend.collate([encoded[i] for i in batch])

    with ThreadPoolExecutor(1) as preparer, ThreadPoolExecutor(backend.runners) as pool:
        for _ in pool.map(partial(backend.run, exclusive=False), preparer.map(collate, batches)):
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
