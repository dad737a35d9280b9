"""What `redbatch rerank` computes: a score for each row, and its rank among the rows of its query."""

from __future__ import annotations

from collections.abc import Mapping

from redbatch.embed.columns import ColumnChoice
from redbatch.embed.plan import Work
from redbatch.rerank.score_columns import ScoreColumns, score_columns
from redbatch.rerank.score_route import ScoreRoute


def score_work(fields: Mapping[str, object], *, raw: bool) -> Work:
    """Returns the work of `redbatch rerank`.

    Args:
        fields: options of each job: of truncation, and an instruction.
        raw: whether scores are the logits of the model.
    """
    choice = ColumnChoice(ScoreColumns.names, drops_text=False)
    form = {"raw_scores": "true" if raw else "false"}
    return Work("rerank", "score", fields, form, ScoreRoute(fields, raw=raw), choice, score_columns)
