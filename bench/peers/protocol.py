"""Requests to a peer, and the check of its answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers.models import null

PROBE = "Is this the vector of these words, and are they in UTF-8: größer, 東京?"
TOLERANCE = 1e-6
MIN_COSINE = 0.99999
"""Minimum cosine of a correct vector. Float32 with other kernels is well above; bfloat16 is below, at about 0.99995."""

Vector = NDArray[np.float64]


class WrongVectorError(ValueError):
    """A server returned a wrong vector, or none; the message describes the difference."""


def encode_request(form: str, text: str) -> bytes:
    """Returns the body of a request for the vector of one text, in the peer's form (see Peer.body)."""
    bodies: dict[str, dict[str, Any]] = {
        "text": {"text": text},
        "texts": {"text": [text]},
        "openai": {"input": text, "model": "minilm"},
        "kserve": {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": [text]}]},
    }
    return json.dumps(bodies[form], ensure_ascii=False).encode()


def decode_vector(form: str, answer: bytes) -> Vector:
    """Returns the vector in an answer. Raises WrongVectorError if there is none."""
    try:
        parsed = json.loads(answer)
        values = {
            "text": lambda: parsed["embedding"],
            "texts": lambda: parsed[0],
            "openai": lambda: parsed["data"][0]["embedding"],
            "kserve": lambda: parsed["outputs"][0]["data"],
        }[form]()
        return np.array(values, dtype=np.float64).reshape(len(values))
    except (ValueError, TypeError, LookupError) as error:
        raise WrongVectorError(f"no vector in the answer: {answer[:100]!r}") from error


def check_vector(model: str, vector: Vector, expected: Vector) -> None:
    """Raises WrongVectorError unless a vector is as expected: of `null` within 1e-6, of a model by its direction."""
    if vector.shape != expected.shape:
        raise WrongVectorError(f"a vector of {vector.size} numbers instead of {expected.size}")
    if model == "null":
        if (off := float(np.abs(vector - expected).max())) > TOLERANCE:
            raise WrongVectorError(f"wrong vector: off by {off:.2g}")
        return
    norms = float(np.linalg.norm(vector) * np.linalg.norm(expected))
    cosine = float(vector @ expected) / norms if norms else 0.0
    if not cosine > MIN_COSINE:
        raise WrongVectorError(f"wrong vector: its cosine to that of `encode` is {cosine:.6f}")


def expected_null_vector(texts: Sequence[str] = (PROBE,)) -> Vector:
    """Returns the vector of the probe from the model `null`."""
    return np.array(null(texts)[0], dtype=np.float64)
