"""Speed and accuracy of the model's number formats: `make bench ARGS="--only dtype"`.

1,000 texts of mixed lengths go through the engine's own backend, a batch on each core, in each format; the accuracy is
the cosine between a text's vector and the one that float32 gives it. As `python -m bench.dtype FORMAT ...` this module
measures once, in this order and in a process that is set up as an engine's, and prints figures as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from bench.cluster import clean_environment
from bench.figures import Row
from bench.limit import LimitError, sorted_batches
from bench.machine import ROOT
from bench.stage import Extent, Stage, Step
from gpuworker.backends.base import Backend, load_backend
from gpuworker.engine_host import engine_environment
from gpuworker.engine_options import EngineOptions
from gpuworker.models import parse_model
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import built_in
from redbatch.logs import configure_logging

PART = "dtype"
MODEL = "minilm"
TEXTS = 1_000
WARMUP_TEXTS = 64
BASE = "float32"
FORMATS = (BASE, "bfloat16", "float16")
STEP_S = 32.0
PATIENCE_S = 300.0


def steps(_extent: Extent) -> list[Step]:
    """Returns what is to be done in each round."""
    return [Step(PART, "formats", STEP_S, run)]


def run(stage: Stage) -> list[Row]:
    """Measures all formats in a process of its own. Raises LimitError."""
    stage.say("number formats, offline")
    command = [sys.executable, "-m", "bench.dtype", *stage.round.turns(FORMATS)]
    environment = engine_environment(clean_environment({}))
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if ran.returncode != 0:
        raise LimitError(f"bench.dtype failed: {ran.stderr.strip()}")
    found: Mapping[str, Mapping[str, float]] = json.loads(ran.stdout)
    return [Row(PART, {"format": name}, figures) for name, figures in found.items()]


def main(arguments: Sequence[str]) -> None:
    """Measures the formats in the order given, and prints the figures of each."""
    configure_logging("dtype", "error")  # what this prints is read
    settings = WorkerSettings(model=MODEL)
    options = EngineOptions(**{each.name: getattr(settings, each.name) for each in fields(EngineOptions)})
    texts = [text for (text,) in built_in("mixed", 1, 1)[:TEXTS]]
    backends = {name: load_backend(parse_model(MODEL), replace(options, dtype=name)) for name in FORMATS}
    for backend in backends.values():
        embed(backend, texts[:WARMUP_TEXTS])
    seconds: dict[str, float] = {}
    vectors: dict[str, NDArray[np.float32]] = {}
    for name in arguments:
        began = time.perf_counter()
        vectors[name] = embed(backends[name], texts)
        seconds[name] = time.perf_counter() - began
    sys.stdout.write(json.dumps({name: figures(name, seconds, vectors) for name in FORMATS}))


def figures(name: str, seconds: Mapping[str, float], vectors: Mapping[str, NDArray[np.float32]]) -> dict[str, float]:
    """Returns what a format gave beside float32. A distance is 1 - cosine, whose digits a cosine near 1 would lose."""
    distances = 1 - cosines(vectors[name], vectors[BASE])
    return {
        "texts_per_s": len(vectors[name]) / seconds[name],
        "times_float32": seconds[BASE] / seconds[name],
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
