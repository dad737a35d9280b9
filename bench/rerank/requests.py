"""The requests of `make bench-rerank`: a query and its documents, in the form of each server. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from redbatch.bench.texts import SPECIAL_TOKENS, WORDS

DOCUMENTS = 100
DOCUMENT_TOKENS = (100, 300)
QUERY_WORDS = 10
SEED = 11
TIMEOUT_MS = 300_000
"""Above the time that the last of 32 clients waits on two slow cores."""


class WrongScoreError(ValueError):
    """An answer lacks the score of a pair, or has another one; the message describes the difference."""


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """A query, and the documents that are scored for it."""

    query: str
    documents: Sequence[str]


def make_requests(number: int, num_documents: int = DOCUMENTS) -> list[RerankRequest]:
    """Returns different requests. All have documents of the same lengths, so that each is the same work."""
    random = Random(SEED)  # noqa: S311 - texts, no secrets
    low, high = DOCUMENT_TOKENS
    step = (high - low) / (num_documents - 1)
    lengths = [round(low + step * i) - SPECIAL_TOKENS for i in range(num_documents)]
    requests = []
    for _ in range(number):
        random.shuffle(lengths)
        documents = [" ".join(random.choices(WORDS, k=length)) for length in lengths]
        requests.append(RerankRequest(" ".join(random.choices(WORDS, k=QUERY_WORDS)), documents))
    return requests


@dataclass(frozen=True, slots=True)
class Form:
    """The form of requests and answers of a server.

    Attributes:
        encode: the fields of the body of a request.
        ranks: the scored documents in an answer.
        score: the name of the field of a score, which is a logit.
        tolerance: how far a score may be from that of `CrossEncoder.predict`.
    """

    encode: Callable[[RerankRequest], Mapping[str, Any]]
    ranks: Callable[[Any], Sequence[Mapping[str, Any]]]
    score: str
    tolerance: float


REDBATCH = Form(
    encode=lambda request: {"query": request.query, "texts": request.documents, "raw_scores": True},
    ranks=lambda answer: answer,
    score="score",
    tolerance=1e-5,
)
INFINITY = Form(
    encode=lambda request: {
        "model": "minilm",
        "query": request.query,
        "documents": request.documents,
        "raw_scores": True,
    },
    ranks=lambda answer: answer["results"],
    score="relevance_score",
    tolerance=1e-4,
)
"""Another version of the libraries rounds differently, hence its tolerance."""


def check_scores(form: Form, body: bytes, expected: Sequence[float]) -> None:
    """Checks that an answer has the score of each pair of its request, by the index of the document.

    Raises:
        WrongScoreError: a score is missing, or is not that of its pair.
    """
    try:
        found = {each["index"]: float(each[form.score]) for each in form.ranks(json.loads(body))}
        scores = [found[index] for index in range(len(expected))]
    except (ValueError, TypeError, LookupError) as error:
        raise WrongScoreError(f"no scores of {len(expected)} documents in the answer: {body[:100]!r}") from error
    for score, other in zip(scores, expected, strict=True):
        if not abs(score - other) <= form.tolerance:  # also if it is NaN
            raise WrongScoreError(f"a score is off by {abs(score - other):.2g}: it is not that of its pair")
