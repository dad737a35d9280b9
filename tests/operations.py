"""What clients of a simulated model request of it, and the proof that an answer belongs to their text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import sha256
from typing import Any

import numpy as np

from tests.integration.gateway.gateway_cluster import null_vector, vector_bytes

MAX_LOGIT = 8
TOLERANCE = 1e-5


class Operation(ABC):
    """A request for one text, and its answer.

    Attributes:
        name: of the operation in Redis.
        path: where requests go.
        num_inputs: inputs of a request.
    """

    name: str
    path: str
    num_inputs: int

    @abstractmethod
    def model(self, name: str) -> str:
        """Returns a simulated model that has this operation, with the times of another one."""

    @abstractmethod
    def body(self, text: str) -> dict[str, Any]:
        """Returns the body of the request."""

    @abstractmethod
    def is_answer(self, content: Any, text: str) -> bool:  # noqa: ANN401 - parsed JSON
        """Returns whether the content of an answer is that for this text, and not for another one."""


class Embed(Operation):
    """The vector of the text."""

    name, path, num_inputs = "embed", "/embed", 1

    def model(self, name: str) -> str:
        """Returns the model."""
        return name

    def body(self, text: str) -> dict[str, Any]:
        """Returns the body of a request for one vector."""
        return {"text": text}

    def is_answer(self, content: Any, text: str) -> bool:  # noqa: ANN401 - parsed JSON
        """Returns whether the vector is that of the text, bit for bit."""
        return vector_bytes(content["embedding"]) == null_vector(text)


class Score(Operation):
    """The scores of two documents for a query: the text is in all three.

    A logit of this model has one of 256 values, so an answer for another text has the same two once in 65,536 times.
    """

    name, path, num_inputs = "score", "/v1/rerank", 2

    def model(self, name: str) -> str:
        """Returns the model as a reranker."""
        return f"{name},labels=1"

    def body(self, text: str) -> dict[str, Any]:
        """Returns the body of a request for two logits."""
        query, documents = _pairs_of(text)
        return {"query": query, "documents": documents, "use_activation": False}

    def is_answer(self, content: Any, text: str) -> bool:  # noqa: ANN401 - parsed JSON
        """Returns whether each logit is that of its pair, within TOLERANCE."""
        query, documents = _pairs_of(text)
        found = {each["index"]: each["relevance_score"] for each in content["results"]}
        return sorted(found) == [0, 1] and all(
            abs(found[index] - _logit(query, document)) <= TOLERANCE for index, document in enumerate(documents)
        )


def _pairs_of(text: str) -> tuple[str, list[str]]:
    return f"query of {text}", [f"first of {text}", f"second of {text}"]


def _logit(query: str, document: str) -> float:
    digest = sha256(f"{query}\0{document}".encode()).digest()
    return float(np.float32(digest[0]) / np.float32(255) * MAX_LOGIT * 2 - MAX_LOGIT)


EMBED, SCORE = Embed(), Score()
