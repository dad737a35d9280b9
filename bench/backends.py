"""Speed and accuracy of the backends and their number formats: `make bench ARGS="--only backends"`.

512 texts of each mix run on the engine's backend in each variant, in batches sorted by length, one on each core. The
accuracy is the cosine between a text's vector and its vector from torch in float32. `python -m bench.backends VARIANT
...` measures once, in this order, in a process with the environment of an engine, and prints figures as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from bench.child_process import run_module
from bench.cluster import clean_environment
from bench.figures import Row
from bench.limit import sorted_batches
from bench.step import Extent, Step, StepContext
from gpuworker.backends.base import Backend
from gpuworker.backends.selection import load_backend
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.ipc.engine_process import engine_environment
from gpuworker.model_spec import parse_model
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import built_in_texts
from shared.process.logs import configure_logging

PART = "backends"
MODEL = "minilm"
MIXES = ("short", "mixed")
TEXTS = 512
WARMUP_TEXTS = 64
BASELINE = "torch float32"
VARIANTS = (
    BASELINE,
    "torch float32 compiled",
    "torch float32 compiled, buckets",
    "torch bfloat16",
    "torch float16",
    "onnx float32",
    "onnx float32 buckets",
    "openvino float32",
    "openvino float32 buckets",
    "openvino bfloat16",
)
"""Each is a backend, a number format, and further options."""

STEP_S = 75.0
TIMEOUT_S = 600.0


def steps(_extent: Extent) -> list[Step]:
    """Returns the steps of each round."""
    return [Step(PART, "backends", STEP_S, run)]


def run(context: StepContext) -> list[Row]:
    """Measures all variants in a separate process. Raises ModuleError."""
    context.show("backends and number formats, offline")
    environment = engine_environment(clean_environment({}))
    output = run_module("backends", context.round.rotate(VARIANTS), environment, TIMEOUT_S)
    results: Mapping[str, Mapping[str, float]] = json.loads(output)
    return [Row(PART, parse_variant(variant), each) for variant, each in results.items()]


def parse_variant(variant: str) -> dict[str, str]:
    """Returns the backend of a variant, its format, and its further options."""
    backend, dtype, *more = variant.split(" ", 2)
    return {"backend": backend, "format": dtype, "with": "".join(more)}


def main(arguments: Sequence[str]) -> None:
    """Measures the variants in the given order, and prints the figures of each."""
    configure_logging("backends", "error")  # stdout is parsed
    texts = {mix: [text for (text,) in built_in_texts(mix, 1, 1)[:TEXTS]] for mix in MIXES}
    seconds: dict[str, dict[str, float]] = {}
    vectors: dict[str, NDArray[np.float32]] = {}
    for variant in arguments:
        seconds[variant], vectors[variant] = measure(_load(variant), texts)
    sys.stdout.write(json.dumps({variant: figures(variant, seconds, vectors) for variant in VARIANTS}))


def _load(variant: str) -> Backend:
    settings = WorkerSettings(model=MODEL)
    options = EngineOptions.from_settings(settings)
    parts = parse_variant(variant)
    return load_backend(
        parse_model(MODEL),
        replace(
            options,
            backend=parts["backend"],
            dtype=parts["format"],
            compile="compiled" in parts["with"],
            shape_buckets="on" if "buckets" in parts["with"] else "off",
        ),
    )


def measure(backend: Backend, texts: Mapping[str, Sequence[str]]) -> tuple[dict[str, float], NDArray[np.float32]]:
    """Returns the time of each mix of texts (s), and the vectors of all texts."""
    seconds: dict[str, float] = {}
    vectors = []
    for mix, some in texts.items():
        embed(backend, some[:WARMUP_TEXTS])
        began = time.perf_counter()
        vectors.append(embed(backend, some))
        seconds[mix] = time.perf_counter() - began
    return seconds, np.concatenate(vectors)


def figures(
    variant: str, seconds: Mapping[str, Mapping[str, float]], vectors: Mapping[str, NDArray[np.float32]]
) -> dict[str, float]:
    """Returns the figures of a variant, compared with the baseline.

    A distance is 1 - cosine: rounding would remove the digits of a cosine near 1.
    """
    distances = 1 - cosines(vectors[variant], vectors[BASELINE])
    number = len(vectors[variant]) / len(seconds[variant])
    return {
        **{f"{mix}_texts_per_s": number / took for mix, took in seconds[variant].items()},
        **{f"{mix}_speedup": seconds[BASELINE][mix] / took for mix, took in seconds[variant].items()},
        "largest_distance": max(0.0, float(distances.max())),
        "mean_distance": max(0.0, float(distances.mean())),
    }


def embed(backend: Backend, texts: Sequence[str]) -> NDArray[np.float32]:
    """Returns the vectors of the texts, computed in batches sorted by length, one on each core at a time."""
    encoded = backend.tokenize(texts)
    batches = list(sorted_batches([each.tokens for each in encoded], backend.max_batch_tokens))
    with ThreadPoolExecutor(backend.runners) as pool:
        vectors = pool.map(
            lambda batch: backend.run(backend.collate([encoded[i] for i in batch]), exclusive=backend.runners == 1),
            batches,
        )
        rows = np.concatenate(list(vectors))
    places = np.argsort(np.fromiter(chain.from_iterable(batches), dtype=np.int64))
    ordered: NDArray[np.float32] = rows[places]
    return ordered


def cosines(vectors: NDArray[np.float32], expected: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns the cosine of each row with the same row of `expected`."""
    a, b = vectors.astype(np.float64), expected.astype(np.float64)
    same: NDArray[np.float64] = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return same


if __name__ == "__main__":
    main(sys.argv[1:])
