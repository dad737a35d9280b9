"""Scores pairs of a query and a text in requests to /score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import httpx
import numpy as np

from redbatch.embed.readers import Content
from redbatch.embed.requests import Batch, RequestRoute

TRUNCATED_HEADER = "x-truncated-inputs"
LENGTH_ERRORS: Sequence[int | str] = (
    httpx.codes.REQUEST_ENTITY_TOO_LARGE,
    httpx.codes.INTERNAL_SERVER_ERROR,
)
"""Statuses of a request of which one pair may be at fault, if pairs are truncated; a 400 is for all pairs then."""

TOO_LONG = "invalid_request"
"""The code for a pair that is too long, if pairs are not truncated; a model that scores no pairs has another one."""


class ScoreRoute(RequestRoute):
    """The route of the scores of pairs.

    Args:
        fields: `truncate`, `truncation_direction` and `instruction`, as far as they are given.
        raw: whether scores are the logits of the model.
    """

    path = "/score"
    is_partial = False

    def __init__(self, fields: Mapping[str, object], *, raw: bool) -> None:
        self._fields = fields
        self._raw = raw
        self._truncate = fields.get("truncate", True)
        self.input_errors = LENGTH_ERRORS if self._truncate else (TOO_LONG, *LENGTH_ERRORS)

    def fields_of(self, contents: Sequence[Content], *, partial: bool) -> dict[str, object]:  # noqa: ARG002 - never
        """Returns the fields of a body."""
        pairs = cast("Sequence[dict[str, str]]", contents)
        instruction = self._fields.get("instruction")
        return {
            **({} if instruction is None else {"instruction": instruction}),
            "text_1": [each["query"] for each in pairs],
            "text_2": [each["text"] for each in pairs],
            "truncation_side": self._fields.get("truncation_direction", "right"),
            "truncate": self._truncate,
            "use_activation": not self._raw,
        }

    def read(self, answer: httpx.Response) -> Batch:
        """Returns the scores in an answer, each as a row of one number."""
        rows = [np.array([each["score"]], dtype="<f4") for each in answer.json()["data"]]
        return Batch(list(rows), {}, int(answer.headers.get(TRUNCATED_HEADER, 0)))
