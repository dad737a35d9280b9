"""The models `null` and `simulated`: vectors that prove which text they are of, at no cost or by a formula."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuworker.models import Model

REPEATS = 12
DIM = 32 * REPEATS
MAX_BATCH_TOKENS = 16_384


@dataclass(frozen=True, slots=True)
class Digest:
    """SHA-256 of a text."""

    digest: bytes
    tokens: int = 1


class HashingBackend:
    """Vectors are SHA-256 of the UTF-8 text: its 32 bytes each divided by 255 as float32, repeated 12 times.

    A batch of n takes `base_ms + item_ms * (n - 1)` milliseconds of sleep; for `null` both are 0.
    """

    def __init__(self, model: Model) -> None:
        self.dim = DIM
        self.device = "cpu"
        self.max_batch_tokens = MAX_BATCH_TOKENS
        self.packs = True
        self.runners = 1
        self._base_s = model.base_ms / 1000
        self._item_s = model.item_ms / 1000
        self.ahead = self._base_s + self._item_s > 0  # a sleep is a device of its own; no time is none

    def tokenize(self, texts: Sequence[str]) -> list[Digest]:
        """Hashes each text; it counts as one token."""
        return [Digest(hashlib.sha256(text.encode()).digest()) for text in texts]

    def collate(self, inputs: Sequence[Digest]) -> bytes:
        """Joins the digests."""
        return b"".join([each.digest for each in inputs])

    def run(self, batch: bytes, *, alone: bool) -> NDArray[np.float32]:  # noqa: ARG002 - the formula is the same
        """Returns the vectors after the simulated time."""
        n = len(batch) // 32
        if self._base_s or self._item_s:
            time.sleep(self._base_s + self._item_s * (n - 1))
        digits = np.frombuffer(batch, dtype=np.uint8).astype(np.float32) / np.float32(255)
        return np.tile(digits.reshape(n, 32), (1, REPEATS))

    def free_memory(self) -> None:
        """Does nothing: it keeps none."""

    def warmup(self) -> None:
        """Does nothing: a formula has no cold start."""
