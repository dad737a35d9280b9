"""Speed and accuracy of the model's number formats on this CPU: `python -m bench.dtype [MODEL]`. Imports torch.

Prints a table and writes it into docs/performance.md.

1,000 texts of mixed lengths go through the engine's own backend, a batch on each core, in each format, round by round;
the accuracy is the cosine between a text's vector and the one that float32 gives it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from bench import document
from bench.document import with_block
from bench.limit import sorted_batches
from bench.tables import markdown
from gpuworker.backends.base import Backend, load_backend
from gpuworker.engine_options import EngineOptions
from gpuworker.models import parse_model
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import built_in

TEXTS = 1_000
ROUNDS = 3
FORMATS = ("float32", "bfloat16", "float16")
HEADS = ("format", "texts/s", "× float32", "smallest cosine", "mean cosine")
BLOCK = "dtype"


def main(arguments: Sequence[str]) -> None:
    """Measures and writes a table."""
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
    table = markdown(HEADS, rows(seconds, vectors))
    print(table)
    document.PATH.write_text(with_block(document.PATH.read_text(encoding="utf-8"), BLOCK, table), encoding="utf-8")


def rows(seconds: Mapping[str, Sequence[float]], vectors: Mapping[str, NDArray[np.float32]]) -> list[list[str]]:
    """Returns the lines of the table."""
    lines = []
    base = statistics.median(seconds[FORMATS[0]])
    for name in FORMATS:
        took = statistics.median(seconds[name])
        same = cosines(vectors[name], vectors[FORMATS[0]])
        lines.append([name, f"{TEXTS / took:,.0f}", f"{base / took:.2f}", f"{same.min():.6f}", f"{same.mean():.6f}"])
    return lines


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
