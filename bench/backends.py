"""Speed and accuracy of the backends and their number formats: `make bench ARGS="--only backends"`.

512 texts of each mix go through the engine's own backend, in batches sorted by length, one on each core, in each way to
compute; the accuracy is the cosine between a text's vector and the one that torch gives it in float32. As `python -m
bench.backends WAY ...` this module measures once, in this order and in a process that is set up as an engine's, and
prints figures as JSON.
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

from bench.child import output_of
from bench.cluster import clean_environment
from bench.figures import Row
from bench.limit import sorted_batches
from bench.stage import Extent, Stage, Step
from gpuworker.backends.base import Backend, load_backend
from gpuworker.ipc.engine_process import engine_environment
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.models import parse_model
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import built_in
from shared.process.logs import configure_logging

PART = "backends"
MODEL = "minilm"
MIXES = ("short", "mixed")
TEXTS = 512
WARMUP_TEXTS = 64
BASE = "torch float32"
WAYS = (
    BASE,
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
"""Each a backend, a format, and what else is set."""

STEP_S = 75.0
PATIENCE_S = 600.0


def steps(_extent: Extent) -> list[Step]:
    """Returns what is to be done in each round."""
    return [Step(PART, "backends", STEP_S, run)]


def run(stage: Stage) -> list[Row]:
    """Measures all ways in a process of its own. Raises LimitError."""
    stage.say("backends and number formats, offline")
    environment = engine_environment(clean_environment({}))
    printed = output_of("backends", stage.round.turns(WAYS), environment, PATIENCE_S)
    found: Mapping[str, Mapping[str, float]] = json.loads(printed)
    return [Row(PART, parts_of(way), each) for way, each in found.items()]


def parts_of(way: str) -> dict[str, str]:
    """Returns the backend of a way, its format, and what else is set."""
    backend, dtype, *more = way.split(" ", 2)
    return {"backend": backend, "format": dtype, "with": "".join(more)}


def main(arguments: Sequence[str]) -> None:
    """Measures the ways in the order given, and prints the figures of each."""
    configure_logging("backends", "error")  # what this prints is read
    texts = {mix: [text for (text,) in built_in(mix, 1, 1)[:TEXTS]] for mix in MIXES}
    seconds: dict[str, dict[str, float]] = {}
    vectors: dict[str, NDArray[np.float32]] = {}
    for way in arguments:
        seconds[way], vectors[way] = measured(_loaded(way), texts)
    sys.stdout.write(json.dumps({way: figures(way, seconds, vectors) for way in WAYS}))


def _loaded(way: str) -> Backend:
    settings = WorkerSettings(model=MODEL)
    options = EngineOptions.of(settings)
    of = parts_of(way)
    return load_backend(
        parse_model(MODEL),
        replace(
            options,
            backend=of["backend"],
            dtype=of["format"],
            compile="compiled" in of["with"],
            shape_buckets="on" if "buckets" in of["with"] else "off",
        ),
    )


def measured(backend: Backend, texts: Mapping[str, Sequence[str]]) -> tuple[dict[str, float], NDArray[np.float32]]:
    """Returns how long each mix of texts takes, and the vectors of all."""
    seconds: dict[str, float] = {}
    vectors = []
    for mix, some in texts.items():
        embed(backend, some[:WARMUP_TEXTS])
        began = time.perf_counter()
        vectors.append(embed(backend, some))
        seconds[mix] = time.perf_counter() - began
    return seconds, np.concatenate(vectors)


def figures(
    way: str, seconds: Mapping[str, Mapping[str, float]], vectors: Mapping[str, NDArray[np.float32]]
) -> dict[str, float]:
    """Returns what a way gave beside the first. A distance is 1 - cosine, whose digits a cosine near 1 would lose."""
    distances = 1 - cosines(vectors[way], vectors[BASE])
    number = len(vectors[way]) / len(seconds[way])
    return {
        **{f"{mix}_texts_per_s": number / took for mix, took in seconds[way].items()},
        **{f"{mix}_times_base": seconds[BASE][mix] / took for mix, took in seconds[way].items()},
        "largest_distance": max(0.0, float(distances.max())),
        "mean_distance": max(0.0, float(distances.mean())),
    }


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
