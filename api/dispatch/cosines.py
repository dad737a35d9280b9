"""Scores of pairs by a model of embeddings: the cosine of their vectors. Each text is embedded once. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, cast

import numpy as np

from api.dialects.request import InferenceRequest, InferenceResult
from api.dialects.vectors import rows_of
from shared.errors import InvalidRequestError
from shared.messages import EMBED, SCORE, Vectors


class Cosines(NamedTuple):
    """Pairs of texts, and the request that embeds these texts.

    Attributes:
        request: for the vectors of all texts, each once; an error names a text by the first of its pairs.
        pairs: the indices of the two texts of each pair, in that request.
    """

    request: InferenceRequest
    pairs: tuple[tuple[int, int], ...]

    def score(self, result: InferenceResult) -> InferenceResult:
        """Returns the cosine of each pair, in place of the vectors of the texts."""
        vectors = np.asarray(rows_of(result))
        firsts, seconds = (vectors[list(indices)] for indices in zip(*self.pairs, strict=True))
        cosines = np.clip(np.einsum("ij,ij->i", firsts, seconds), -1.0, 1.0).astype("<f4")
        cut = set(result.truncated)
        truncated = [number for number, pair in enumerate(self.pairs) if not cut.isdisjoint(pair)]
        part = Vectors("", 0, len(self.pairs), 1, cosines.tobytes(), revision=result.revision)
        return result._replace(parts=(part,), truncated=truncated)


def cosines_of(request: InferenceRequest, ops: Collection[str]) -> Cosines | None:
    """Returns how to score the pairs of a request by embeddings; None if the model scores them, or cannot do either.

    Raises:
        InvalidRequestError: an option is for one of the two texts of a pair.
    """
    if request.op != SCORE or SCORE in ops or EMBED not in ops:
        return None
    options = request.options
    if (options.instruction, options.max_query_tokens, options.max_document_tokens) != (None, None, None):
        raise InvalidRequestError(
            "This model makes embeddings of all texts alike: leave out instruction, max_tokens_per_query and "
            "max_tokens_per_doc."
        )
    queries = cast("tuple[str, ...]", request.queries or (options.query,) * len(request.inputs))
    places: dict[str, int] = {}
    numbers: list[int] = []
    pairs: list[tuple[int, int]] = []
    for number, pair in enumerate(zip(queries, cast("tuple[str, ...]", request.inputs), strict=True)):
        first, second = (places.setdefault(each, len(places)) for each in pair)
        numbers += [number] * (len(places) - len(numbers))
        pairs.append((first, second))
    options = options._replace(query=None, normalize=True)
    embedding = request._replace(inputs=tuple(places), op=EMBED, options=options, queries=(), indices=numbers)
    return Cosines(embedding, tuple(pairs))
