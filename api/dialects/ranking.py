"""The scores of texts, made of the logits of a reranker, and their order. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from api.dialects.parsing import CombinationError, Unserved, check_inputs
from api.dialects.truncation import CutFields
from api.dialects.vectors import rows_of
from shared.codec import MAX_CUT_TOKENS, MAX_INSTRUCTION
from shared.errors import InputFailedError, InvalidRequestError, TooLargeError
from shared.messages import EMBED_ALL, SIGMOID, Options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from api.dialects.request import InferenceResult, Ranking
    from api.settings_groups import RequestLimits

    Floats = NDArray[np.float32]

NOT_A_NUMBER = "score is NaN"
UNSERVED: Unserved = {
    "normalize": ((), "it was removed; send use_activation instead."),
    "softmax": ((), "it was removed; send use_activation instead."),
    "add_special_tokens": ((True,), "texts always have special tokens here."),
    "on_error": (("fail",), "this route has all results or an error: POST /jobs returns those that there are."),
}
"""Fields that the routes for scores and labels do not have: the first two are former names of `use_activation`, which
vLLM refuses, too, as clients that send them expect other numbers."""


class ScoreFields(BaseModel):
    """Whether scores are from 0 to 1, or logits."""

    use_activation: bool = Field(default=True, description="Whether to return scores from 0 to 1; otherwise logits.")
    raw_scores: bool | None = Field(
        default=None, description="The opposite of use_activation: its name in the APIs of TEI and Infinity."
    )

    @property
    def raw(self) -> bool:
        """Whether scores are logits. Raises CombinationError: both fields are set, and differ."""
        if self.raw_scores is None:
            return not self.use_activation
        if "use_activation" in self.model_fields_set and self.use_activation == self.raw_scores:
            message = "raw_scores: it contradicts use_activation: send one of them."
            raise CombinationError(message, param="raw_scores")
        return self.raw_scores


class TemplateFields(BaseModel):
    """Values for the model's template."""

    model_config = ConfigDict(
        strict=True,
        extra="allow",
        json_schema_extra={"additionalProperties": False, "examples": [{"instruction": "Find animals."}]},
    )

    instruction: str | None = Field(default=None, max_length=MAX_INSTRUCTION, description="As instruction.")


class PairFields(CutFields):
    """How pairs of a query and a document are read."""

    instruction: str | None = Field(
        default=None,
        max_length=MAX_INSTRUCTION,
        description="What relevance means, in words, for a reranker whose template has a place for it.",
    )
    instruct: str | None = Field(default=None, max_length=MAX_INSTRUCTION, description="SGLang's name of instruction.")
    chat_template_kwargs: TemplateFields | None = Field(
        default=None, description="Where clients of vLLM have the instruction."
    )
    max_tokens_per_query: int = Field(
        default=0, ge=0, le=MAX_CUT_TOKENS, description="Maximum tokens that are read of a query; 0: all."
    )
    max_tokens_per_doc: int = Field(
        default=0, ge=0, le=MAX_CUT_TOKENS, description="Maximum tokens that are read of a document; 0: all."
    )

    @property
    def options(self) -> Options:
        """The options of the engine, without the query. Raises InvalidRequestError: two fields say different things."""
        return super().options._replace(
            instruction=self._instruction(),
            max_query_tokens=self.max_tokens_per_query or None,
            max_document_tokens=self.max_tokens_per_doc or None,
        )

    def _instruction(self) -> str | None:
        template = self.chat_template_kwargs or TemplateFields()
        if template.model_extra:
            message = "chat_template_kwargs: send an instruction in it, and nothing else."
            raise InvalidRequestError(message, param="chat_template_kwargs")
        given = {each for each in (self.instruction, self.instruct, template.instruction) if each}
        if len(given) > 1:
            message = "instruction: it contradicts instruct or chat_template_kwargs: send one of them."
            raise CombinationError(message, param="instruction")
        return next(iter(given), None)


def score_activation(ops: Collection[str]) -> str:
    """Returns what makes scores of the results of SCORE of a model that offers these operations.

    Empty for a multi-vector encoder: the similarity of late interaction is no logit, but the score itself.
    """
    return "" if EMBED_ALL in ops else SIGMOID


def rank(result: InferenceResult, ranking: Ranking) -> list[tuple[int, np.float32]]:
    """Returns the index and the score of each text, the best first; of equal scores, in the order of the texts.

    Raises:
        InputFailedError: a score is not a number.
    """
    logits = scores_of(result, raw=True)
    order = np.argsort(-logits, kind="stable")[: ranking.top_n]  # scores may be rounded to the same number
    best = logits[order] if ranking.raw else sigmoid(logits[order])
    return list(zip(order.tolist(), best, strict=True))


def scores_of(result: InferenceResult, *, raw: bool) -> Floats:
    """Returns the score of each input, in their order: the sigmoid of its logit, or the `raw` logit.

    Raises:
        InputFailedError: a score is not a number.
    """
    logits = cast("Floats", rows_of(result))[:, 0]
    if not np.isfinite(logits).all():  # an infinite one is no number of JSON
        raise InputFailedError(NOT_A_NUMBER)
    return logits if raw else sigmoid(logits)


def sigmoid(logits: Floats) -> Floats:
    """Returns 1 / (1 + exp(-x)) of each number, without an overflow."""
    return np.exp(-np.logaddexp(0.0, -logits.astype(np.float64))).astype(np.float32)


def check_pairs(query: str, texts: Sequence[str], limits: RequestLimits, name: str) -> None:
    """Checks texts that are scored with a query. Any of them may be empty.

    Args:
        query: the first text of each pair.
        texts: the second texts.
        limits: the bounds.
        name: of the field that holds the texts.

    Raises:
        TooLargeError: there are too many texts, or one is too long, or the query is.
    """
    errors = check_inputs(texts, limits, f"{name}[{{}}]", partial=True).values()
    too_large = next((each for each in errors if isinstance(each, TooLargeError)), None)
    if too_large is not None:
        raise too_large
    if len(query) > limits.max_input_chars:
        raise TooLargeError(
            f"query: it has {len(query)} characters, over the limit of {limits.max_input_chars}: shorten it, or raise "
            "the setting max_input_chars of the gateway."
        )
