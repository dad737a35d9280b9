"""How a peer is asked, and whether its answer is right. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers.models import null

PROBE = "Is this the vector of these words, and are they in UTF-8: größer, 東京?"
TOLERANCE = 1e-6
LEAST_COSINE = 0.99999
"""Of the cosine. Float32 with other kernels is well above it, bfloat16 below: at about 0.99995."""

Vector = NDArray[np.float64]


class WrongAnswer(ValueError):
    """A server answers something else than what it was asked for; the message says what."""


def body_of(form: str, text: str) -> bytes:
    """Returns the body of a request for the vector of one text, in the form that a peer takes."""
    bodies: dict[str, dict[str, Any]] = {
        "text": {"text": text},
        "texts": {"text": [text]},
        "openai": {"input": text, "model": "minilm"},
    }
    return json.dumps(bodies[form], ensure_ascii=False).encode()


def vector_of(form: str, answer: bytes) -> Vector:
    """Returns the vector in an answer. Raises WrongAnswer when there is none."""
    try:
        found = json.loads(answer)
        values = {
            "text": lambda: found["embedding"],
            "texts": lambda: found[0],
            "openai": lambda: found["data"][0]["embedding"],
        }[form]()
        return np.array(values, dtype=np.float64).reshape(len(values))
    except (ValueError, TypeError, LookupError) as error:
        raise WrongAnswer(f"no vector in the answer: {answer[:100]!r}") from error


def check(model: str, vector: Vector, expected: Vector) -> None:
    """Raises WrongAnswer unless it is the expected vector: that of `null` to 1e-6, of a model by its direction."""
    if vector.shape != expected.shape:
        raise WrongAnswer(f"a vector of {vector.size} numbers instead of {expected.size}")
    if model == "null":
        if (off := float(np.abs(vector - expected).max())) > TOLERANCE:
            raise WrongAnswer(f"another vector: off by {off:.2g}")
        return
    norms = float(np.linalg.norm(vector) * np.linalg.norm(expected))
    cosine = float(vector @ expected) / norms if norms else 0.0
    if not cosine > LEAST_COSINE:
        raise WrongAnswer(f"another vector: its cosine to that of `encode` is {cosine:.6f}")


def expected_of_null(texts: Sequence[str] = (PROBE,)) -> Vector:
    """Returns the probe's vector of the model `null`."""
    return np.array(null(texts)[0], dtype=np.float64)
