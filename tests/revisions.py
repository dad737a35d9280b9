"""Simulated models of several revisions, and whose vectors an answer has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from tests.integration.gateway.gateway_cluster import REPEATS, vector_bytes


def revision_vector(revision: str, text: str) -> bytes:
    """Returns the vector of a text by a simulated model of a revision, as raw float32."""
    digest = np.frombuffer(sha256((revision + text).encode()).digest(), dtype=np.uint8)
    return np.tile(digest.astype("<f4") / np.float32(255), REPEATS).tobytes()


def revisions_in(embeddings: Sequence[Any], texts: Sequence[str], known: Iterable[str] = ("old", "new")) -> set[str]:
    """Returns the revisions, of those known, whose vectors of any of these texts an answer has; "" for another one."""
    names = {revision_vector(name, text): name for text in texts for name in known}
    return {names.get(vector_bytes(each), "") for each in embeddings}
