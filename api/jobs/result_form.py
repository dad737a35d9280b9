"""The form of a job's results: the name of their field, and scores made of logits, which are what is stored. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from api.dialects.classes import activate
from api.dialects.ranking import NOT_A_NUMBER
from shared.errors import InputFailedError, InternalError, InvalidRequestError, NoWorkerError
from shared.messages import CLASSIFY, EMBED, EMBED_ALL, SCORE, SIGMOID

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from api.dialects.request import Labels

SCORE_OPS = (SCORE, CLASSIFY)
RAW_SCORES = "raw_scores"
LABELS_RETRY_S = 1.0


class ResultForm(NamedTuple):
    """The form of results.

    Attributes:
        field: the name of the results in a page.
        is_score: whether a result is one number, in place of a row.
        has_logits: whether the numbers are stored as logits, which have to be finite.
        activation: what makes scores of logits; "" leaves the numbers as they are.
        labels: the names of the labels of a row, if they are known.
    """

    field: str
    is_score: bool = False
    has_logits: bool = False
    activation: str = ""
    labels: tuple[str, ...] = ()

    @property
    def query(self) -> dict[str, str]:
        """The parameters of a query that asks for this form."""
        return {RAW_SCORES: "true"} if self.has_logits and not self.activation else {}

    def rows(self, stored: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns stored rows in this form; rows of logits that are not finite become NaN.

        Raises InternalError: the rows do not have as many numbers as the model has labels.
        """
        if self.labels and stored.shape[1] != len(self.labels):
            raise InternalError("The labels of this model have changed since the job ran: submit it again.")
        if not self.has_logits:
            return stored
        is_finite = np.isfinite(stored).all(axis=1, keepdims=True)
        logits = np.where(is_finite, stored, np.float32(0))
        return np.where(is_finite, activate(logits, self.activation) if self.activation else logits, np.float32(np.nan))

    def error_of(self, row: object) -> dict[str, object] | None:
        """Returns code and message of the error of a row of scores that is not finite; None for any other row."""
        if not self.has_logits or np.isfinite(np.asarray(row)).all():
            return None
        return {"code": InputFailedError.code, "message": NOT_A_NUMBER}


def form_of(op: str, labels: Labels, *, raw: bool | None) -> ResultForm:
    """Returns the form of the results of an operation.

    Args:
        op: the operation.
        labels: those of the model, as far as they are known; for CLASSIFY only.
        raw: whether the client wants logits instead of scores; None: it does not say.

    Raises:
        InvalidRequestError: the operation has no scores, but the client says which it wants.
        NoWorkerError: only a worker knows what makes scores of the logits.
    """
    if op not in SCORE_OPS:
        if raw is not None:
            raise InvalidRequestError(f"{RAW_SCORES}: the results of {op} are no scores.", param=RAW_SCORES)
        return ResultForm("embeddings" if op in (EMBED, EMBED_ALL) else "outputs")
    if op == SCORE:
        return ResultForm("scores", is_score=True, has_logits=True, activation="" if raw else SIGMOID)
    if not labels.names and not raw:
        message = (
            f"No worker of this model has reported its labels: start one, or get the logits with {RAW_SCORES}=true."
        )
        raise NoWorkerError(message, retry_after_s=LABELS_RETRY_S)
    return ResultForm("scores", has_logits=True, activation="" if raw else labels.activation, labels=labels.names)
