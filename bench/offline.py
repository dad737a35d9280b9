"""Runs a model offline and prints the times: `python -m bench.offline MODEL MIX TEXTS [side-by-side]`.

The texts are those of the serving runs. They run on all cores: by `SentenceTransformer.encode`, and in batches sorted
by length on the engine's backend, one after the other on all cores or also one on each core. All times include
tokenization. Imports torch.
The backend is the one that a worker with the same REDBATCH_* variables loads; without `side-by-side` its weights keep
torch's layout, as in any other program.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial

import torch
from sentence_transformers import SentenceTransformer

from bench.limit import SIDE_BY_SIDE, Limit, sorted_batches
from gpuworker.backends.base import Backend
from gpuworker.backends.selection import load_backend
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.model_spec import parse_model
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import built_in_texts
from shared.process.logs import configure_logging

ENCODE_SIZES = (32, 64)
BATCH_TOKENS = (512, 1_024, 2_048)
WARMUP_TEXTS = 64
SEED = 1

Method = Callable[[Sequence[str]], None]


def main(arguments: Sequence[str]) -> None:
    """Measures, and prints a Limit as JSON."""
    name, mix, number, *flags = arguments
    configure_logging("offline", "error")  # stdout is parsed
    pool = [text for (text,) in built_in_texts(mix, SEED, 1)]
    texts = pool[: int(number)]
    model, threads = parse_model(name), torch.get_num_threads()
    transformer = SentenceTransformer(model.path)
    side_by_side = flags == [SIDE_BY_SIDE]
    settings = WorkerSettings(model=name)
    options = EngineOptions.from_settings(settings)
    backend = load_backend(model, options if side_by_side else replace(options, prepack=False))
    methods, at_once = _methods(backend, transformer, threads), _at_once(backend) if side_by_side else {}
    for method in (*methods.values(), *at_once.values()):
        method(texts[:WARMUP_TEXTS])
    limit = Limit(
        {label: _seconds(partial(method, texts)) for label, method in methods.items()},
        {},
        {label: _seconds(partial(method, texts)) for label, method in at_once.items()},
        len(texts),
        [each.tokens for each in backend.tokenize(pool)],
    )
    sys.stdout.write(json.dumps(asdict(limit)))


def _methods(backend: Backend, transformer: SentenceTransformer, threads: int) -> dict[str, Method]:
    def encode(size: int) -> Method:
        def run(texts: Sequence[str]) -> None:
            torch.set_num_threads(threads)  # the backend may have changed it
            transformer.encode(list(texts), batch_size=size, show_progress_bar=False)

        return run

    methods = {f"encode, {size} texts": encode(size) for size in ENCODE_SIZES}
    return methods | {f"sorted, {tokens} tokens": _batches(backend, tokens, 1) for tokens in BATCH_TOKENS}


def _at_once(backend: Backend) -> dict[str, Method]:
    runners = backend.runners
    sizes = BATCH_TOKENS if runners > 1 else ()
    return {
        f"sorted, {tokens} tokens, tuned, {runners} at once": _batches(backend, tokens, runners) for tokens in sizes
    }


def _batches(backend: Backend, max_tokens: int, runners: int) -> Method:
    return lambda texts: _run_sorted(backend, texts, max_tokens, runners)


def _run_sorted(backend: Backend, texts: Sequence[str], max_tokens: int, runners: int) -> None:
    encoded = backend.tokenize(texts)

    def run(batch: Sequence[int]) -> None:
        backend.run(backend.collate([encoded[i] for i in batch]), exclusive=runners == 1)

    with ThreadPoolExecutor(runners) as pool:
        for _ in pool.map(run, sorted_batches([each.tokens for each in encoded], max_tokens)):
            pass


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main(sys.argv[1:])
