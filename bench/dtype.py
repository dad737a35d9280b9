"""Speed and accuracy of the model's number formats on this CPU: `python -m bench.dtype [MODEL]`. Imports torch.

1,000 texts of mixed lengths go through the engine's own backend, a batch on each core, in each format, round by round;
the accuracy is the cosine between a text's vector and the one that float32 gives it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from bench.limit import sorted_batches
from gpuworker.backends.base import Backend, load_backend
from gpuworker.engine_options import EngineOptions
from gpuworker.models import parse_model
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import built_in

TEXTS = 1_000
ROUNDS = 3
FORMATS = ("float32", "bfloat16", "float16")


def main(arguments: Sequence[str]) -> None:
    """Measures and prints a table."""
    settings = WorkerSettings(model=arguments[0] if arguments else "minilm")
    options = EngineOptions(**{each.name: getattr(settings, each.name) for each in fields(EngineOptions)})
    texts = [text for (text,) in built_in("mixed", 1, 1)[:TEXTS]]
    backends = {name: load_backend(parse_model(options.model), replace(options, dtype=name)) for name in FORMATS}
    for backend in backends.values():
        embed(backend, texts[:64])
    seconds: dict[str, list[float]] = {name: [] for name in FORMATS}
    vectors: dict[str, NDArray[np.float32]] = {}
    for _ in range(ROUNDS):
        for name, backend in backends.items():
            began = time.perf_counter()
            vectors[name] = embed(backend, texts)
            seconds[name].append(time.perf_counter() - began)
    print("| format | texts/s | to float32 | smallest cosine | mean cosine |\n| --- | --- | --- | --- | --- |")
    base = statistics.median(seconds["float32"])
    for name in FORMATS:
        took = statistics.median(seconds[name])
        same = cosines(vectors[name], vectors["float32"])
        row = f"{TEXTS / took:,.0f} | {base / took:.2f} × | {same.min():.6f} | {same.mean():.6f}"
        print(f"| {name} | {row} |")


def embed(backend: Backend, texts: Sequence[str]) -> NDArray[np.float32]:
    """Returns the vectors of the texts, computed in batches sorted by length, one on each core at a time."""
    encoded = backend.tokenize(texts)
    batches = list(sorted_batches([each.tokens for each in encoded], backend.max_batch_tokens))
    with ThreadPoolExecutor(backend.runners) as pool:
        found = pool.map(
            lambda batch: backend.run(backend.collate([encoded[i] for i in batch]), alone=backend.runners == 1), batches
        )
        rows = np.concatenate(list(found))
    places = np.argsort(np.fromiter(chain.from_iterable(batches), dtype=np.int64))
    ordered: NDArray[np.float32] = rows[places]
    return ordered


def cosines(found: NDArray[np.float32], expected: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns the cosine of each row with its like."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    same: NDArray[np.float64] = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return same


if __name__ == "__main__":
    main(sys.argv[1:])
