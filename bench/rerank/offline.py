"""Scores pairs without a server, and prints the times: `python -m bench.rerank.offline WAY MODEL REQUESTS DOCUMENTS`.

`predict` calls CrossEncoder.predict for each request, and prints the logits too. `packed` runs the pairs of all
requests sorted by length, in batches without padding, on the backend that a worker loads: one batch at a time, and one
on each core. All times include tokenization. Imports torch.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sentence_transformers import CrossEncoder
from torch.nn import Identity

from bench.limit import sorted_batches
from bench.rerank.requests import RerankRequest, make_requests
from gpuworker.backends.base import Backend
from gpuworker.backends.selection import load_backend
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.model_spec import parse_model
from gpuworker.settings import WorkerSettings
from shared.messages import SCORE, Options
from shared.process.logs import configure_logging

BATCH_TOKENS = (512, 1_024, 2_048)
WARMUP_DOCUMENTS = 16


def main(arguments: Sequence[str]) -> None:
    """Measures, and prints the results as JSON."""
    way, model, number, num_documents = arguments
    configure_logging("offline", "error")  # stdout is parsed
    requests = make_requests(int(number), int(num_documents))
    sys.stdout.write("\n" + json.dumps((predict if way == "predict" else packed)(model, requests)))


def predict(model: str, requests: Sequence[RerankRequest]) -> dict[str, Any]:
    """Returns the seconds of each request, and the logits of its pairs."""
    encoder = CrossEncoder(model, device="cpu")
    seconds, scores = [], []
    pairs = [[(each.query, document) for document in each.documents] for each in requests]
    encoder.predict(pairs[0][:WARMUP_DOCUMENTS], show_progress_bar=False)
    for own in pairs:
        began = time.perf_counter()
        logits = encoder.predict(own, activation_fn=Identity(), show_progress_bar=False)
        seconds.append(time.perf_counter() - began)
        scores.append([float(each) for each in logits])
    return {"seconds": seconds, "scores": scores}


def packed(model: str, requests: Sequence[RerankRequest]) -> dict[str, float]:
    """Returns the seconds of all requests together, by the way in which their batches run."""
    backend = load_backend(parse_model(model), EngineOptions.from_settings(WorkerSettings(model=model)))
    first = requests[0]
    _run_sorted(backend, [RerankRequest(first.query, first.documents[:WARMUP_DOCUMENTS])], BATCH_TOKENS[0], 1)
    seconds = {}
    for runners in sorted({1, backend.runners}):
        for max_tokens in BATCH_TOKENS:
            began = time.perf_counter()
            _run_sorted(backend, requests, max_tokens, runners)
            seconds[f"{max_tokens} tokens, {runners} at once"] = time.perf_counter() - began
    return seconds


def _run_sorted(backend: Backend, requests: Sequence[RerankRequest], max_tokens: int, runners: int) -> None:
    encoded = [each for one in requests for each in backend.tokenize(one.documents, Options(query=one.query))]

    def run(batch: Sequence[int]) -> None:
        backend.run(backend.collate([encoded[i] for i in batch]), SCORE, exclusive=runners == 1)

    with ThreadPoolExecutor(runners) as pool:
        for _ in pool.map(run, sorted_batches([each.tokens for each in encoded], max_tokens)):
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
