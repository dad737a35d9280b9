"""The kinds of a job's inputs, and the operation that a model runs on them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from shared.messages import CLASSIFY, EMBED, EMBED_SPARSE, PREDICT, SCORE

TEXTS, PAIRS, VALUES = KINDS = (EMBED, SCORE, PREDICT)
"""A kind has the name of its usual operation: texts, pairs of a query and a text, and inputs of a function."""

_TEXT_OPS = (EMBED, EMBED_SPARSE, CLASSIFY)
_TEXTS_FORM = 'POST /jobs with {"texts": [...]}'
_FORMS = {
    **dict.fromkeys(_TEXT_OPS, _TEXTS_FORM),
    SCORE: 'POST /jobs with {"query": "...", "documents": [...]}',
    PREDICT: 'POST /jobs with {"inputs": [...]}',
}


def op_of(kind: str, ops: AbstractSet[str]) -> str:
    """Returns the operation on the inputs of a job.

    What a model does with texts depends on the model. The texts of a reranker have no query: this is a mistake, so that
    the operation is one that the model lacks.

    Args:
        kind: of the inputs, of KINDS.
        ops: the operations that the queue's workers offer; empty while they are unknown.
    """
    if kind != TEXTS or SCORE in ops:
        return kind
    return next((each for each in _TEXT_OPS if each in ops), EMBED)


def kinds_of(ops: AbstractSet[str]) -> frozenset[str]:
    """Returns the kinds of inputs that jobs of a model with these operations may have; all, while they are unknown."""
    return frozenset(kind for kind in KINDS if op_of(kind, ops) in ops) or frozenset(KINDS)


def job_forms(ops: AbstractSet[str]) -> Mapping[str, str]:
    """Returns how to send a job, by each operation that a job may run on a model with these operations."""
    return {op: _FORMS[op] for kind in KINDS if (op := op_of(kind, ops)) in ops}
