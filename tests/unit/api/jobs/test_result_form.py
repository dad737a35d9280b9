"""The form of a job's results."""

from __future__ import annotations

import numpy as np
import pytest

from api.dialects.request import Labels
from api.jobs.result_form import form_of
from api.jobs.results import JobRows
from shared.errors import InternalError, InvalidRequestError, NoWorkerError
from shared.messages import CLASSIFY, EMBED, EMBED_SPARSE, SCORE, SOFTMAX, Vectors

LABELS, NO_LABELS = Labels(("no", "yes"), SOFTMAX), Labels()


def rows_of(logits: list[list[float]], op: str, labels: Labels = NO_LABELS, *, raw: bool = False) -> JobRows:
    """Returns the rows of a job with these logits."""
    data = np.array(logits, dtype="<f4")
    reply = Vectors("job", 0, len(data), data.shape[1], data.tobytes())
    return JobRows([reply], 0, len(data), form_of(op, labels, raw=raw), expired=False)


def test_a_score_that_is_no_number_is_an_error() -> None:
    """Of its input alone, as a score or as a logit, in JSON and in a file; also an infinite one."""
    for raw in (False, True):
        rows = rows_of([[0.0], [np.nan], [np.inf], [8.0]], SCORE, raw=raw)
        assert [(each["index"], each["code"], each["message"]) for each in rows.errors] == [
            (1, "input_failed", "score is NaN"),
            (2, "input_failed", "score is NaN"),
        ]
        assert [row is None for row in rows.rows] == [False, True, True, False]
        array = rows.array(1)
        assert np.isnan(array[:, 0]).tolist() == [False, True, True, False]
        assert array[[0, 3], 0] == pytest.approx([0.0, 8.0] if raw else [0.5, 0.99966], abs=1e-4)


def test_the_labels_of_a_job_are_those_of_a_worker() -> None:
    """While none has reported them, there are only logits; other labels than those of the job are an error."""
    with pytest.raises(NoWorkerError, match="raw_scores=true"):
        form_of(CLASSIFY, NO_LABELS, raw=None)
    assert rows_of([[1.0, 2.0, 3.0]], CLASSIFY, raw=True).array(3).tolist() == [[1.0, 2.0, 3.0]]
    assert rows_of([[0.0, 0.0]], CLASSIFY, LABELS).array(2).tolist() == [[0.5, 0.5]]
    with pytest.raises(InternalError, match="labels"):
        rows_of([[1.0, 2.0, 3.0]], CLASSIFY, LABELS)


@pytest.mark.parametrize(("op", "field"), [(EMBED, "embeddings"), (EMBED_SPARSE, "outputs")])
def test_other_results_are_as_they_are_stored(op: str, field: str) -> None:
    """They have no raw scores."""
    assert form_of(op, NO_LABELS, raw=None).field == field
    with pytest.raises(InvalidRequestError, match=f"raw_scores: the results of {op} are no scores"):
        form_of(op, NO_LABELS, raw=True)
