"""The scores of labels, made of the logits of a classifier. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from api.dialects.ranking import NOT_A_NUMBER, sigmoid
from api.dialects.vectors import rows_of
from shared.errors import InputFailedError, InternalError
from shared.messages import SOFTMAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from api.dialects.request import InferenceResult, Labels


class ClassScores(NamedTuple):
    """The scores of labels; both arrays have the shape (inputs, labels).

    Attributes:
        scores: of each label.
        order: the indices of the labels, the best first: scores may be rounded to the same number, logits are not.
    """

    scores: NDArray[np.float32]
    order: NDArray[np.intp]


def class_scores(result: InferenceResult, labels: Labels, *, raw: bool) -> ClassScores:
    """Returns the score of each label for each input; or the `raw` logits.

    Raises:
        InputFailedError: a score is not a number.
        InternalError: the model has another number of labels than its workers report.
    """
    logits = cast("NDArray[np.float32]", rows_of(result))
    if not np.isfinite(logits).all():  # an infinite one is no number of JSON
        raise InputFailedError(NOT_A_NUMBER)
    if logits.shape[1] != len(labels.names):
        raise InternalError("The workers of this queue have models with different labels.")
    order = np.argsort(-logits, axis=1, kind="stable")
    return ClassScores(logits if raw else activate(logits, labels.activation), order)


def activate(logits: NDArray[np.float32], activation: str) -> NDArray[np.float32]:
    """Returns the scores that an activation (see Heartbeat) makes of rows of logits."""
    return softmax(logits) if activation == SOFTMAX else sigmoid(logits)


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the softmax of each row."""
    wide = logits.astype(np.float64)
    powers: NDArray[np.float64] = np.exp(wide - wide.max(axis=1, keepdims=True))
    shares: NDArray[np.float32] = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    return shares
