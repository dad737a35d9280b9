"""BentoML: one service with a batchable method. Its wait is adaptive, bounded by a latency in milliseconds.

Run by `bentoml serve`; the arguments are EMBED_MODEL, EMBED_BATCH_SIZE and EMBED_PROCESSES.
"""

from __future__ import annotations

import os

import bentoml
import numpy as np

from bench.peers.models import load

MAX_LATENCY_MS = 60_000  # its default; it refuses requests that it expects to take longer, so 5 ms is too short


@bentoml.service(
    workers=int(os.environ["EMBED_PROCESSES"]),
    traffic={"timeout": 60},
    logging={"access": {"enabled": False}},
)
class Embedder:
    """The service."""

    def __init__(self) -> None:
        self.model = load(os.environ["EMBED_MODEL"])

    @bentoml.api(
        route="/embed",
        batchable=True,
        max_batch_size=int(os.environ["EMBED_BATCH_SIZE"]),
        max_latency_ms=MAX_LATENCY_MS,
    )
    def embed(self, text: list[str]) -> np.ndarray:
        """Returns the vectors of a batch. A batchable method receives a list from each client, and returns a list."""
        return self.model(text)
