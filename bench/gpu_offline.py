"""Runs a model offline on a GPU and prints how fast: `python -m bench.gpu_offline PATH DEVICE MIX TEXTS`.

Imports torch. By `SentenceTransformer.encode` at several batch sizes, in the format that the engine takes; and by the
engine's own backend in batches of its own size, as it is and compiled. `python -m bench.gpu_offline --make PATH` makes
a base-size model with random weights instead: twelve layers of 768, as BERT's, which take the time of trained ones.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from transformers import BertConfig, BertModel

from bench.limit import sorted_batches
from gpuworker.backends.base import Backend, load_backend
from gpuworker.backends.loading import DTYPES
from gpuworker.engine_options import EngineOptions
from gpuworker.models import parse_model
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import built_in
from redbatch.logs import configure_logging

MAKE = "--make"
ENCODE_SIZES = (64, 256, 1_024)
LEAST_S = 3.0
SEED = 1

Way = Callable[[Sequence[str]], None]


def main(arguments: Sequence[str]) -> None:
    """Measures, and prints texts a second by way as JSON."""
    if arguments[0] == MAKE:
        make(arguments[1])
        return
    path, device, mix, number = arguments
    configure_logging("offline", "error")  # what this prints is read
    texts = [text for (text,) in built_in(mix, SEED, 1)][: int(number)]
    settings = WorkerSettings(model=path, device=device)
    options = EngineOptions(**{each.name: getattr(settings, each.name) for each in fields(EngineOptions)})
    backend = load_backend(parse_model(path), options)
    model = SentenceTransformer(parse_model(path).path, device=device, model_kwargs={"dtype": DTYPES[backend.dtype]})
    ways: dict[str, Way] = {f"encode, {size} texts": partial(_encode, model, size) for size in ENCODE_SIZES}
    ways["engine, packed" if backend.packs else "engine, padded"] = partial(_run_sorted, backend)
    found = {how: rate(way, texts) for how, way in ways.items()}
    compiled = load_backend(parse_model(path), replace(options, compile=True))
    compiled.warmup()
    found["engine, compiled"] = rate(partial(_run_sorted, compiled), texts)
    sys.stdout.write(json.dumps({"dtype": backend.dtype, "texts_per_s": found}))


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
    batches = sorted_batches([each.tokens for each in encoded], backend.max_batch_tokens, len(texts))

    def run(batch: Sequence[int]) -> None:
        backend.run(backend.collate([encoded[i] for i in batch]), alone=False)

    with ThreadPoolExecutor(backend.runners) as pool:
        for _ in pool.map(run, batches):
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
