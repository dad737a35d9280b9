"""The options of texts, as bodies of Redbatch's own API name them. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pydantic import Field

from api.dialects.input_types import PurposeFields
from api.dialects.strict_body import StrictBody
from shared.codec import MAX_DIM, MAX_PROMPT_NAME
from shared.errors import InvalidRequestError
from shared.messages import CLASSIFY, DEFAULT_OPTIONS, EMBED, EMBED_SPARSE, PREDICT, SCORE, Options


class TextOptions(StrictBody, PurposeFields):
    """How texts are read, and how they become vectors."""

    prompt_name: str | None = Field(
        default=None,
        max_length=MAX_PROMPT_NAME,
        description="One of the model's prompts, as query or document. Empty: no prompt, not even the model's default.",
    )
    normalize: bool | None = Field(
        default=None, description="Whether to normalize vectors to length 1; by default as the model does."
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        le=MAX_DIM,
        description="Truncate vectors to this many dimensions, before they are normalized.",
    )
    truncate: bool | None = Field(
        default=True, description="Whether to truncate a text that is too long for the model; false makes it an error."
    )
    truncation_direction: Literal["left", "right"] | None = Field(
        default="right", description="Side from which to truncate."
    )

    @property
    def options(self) -> Options:
        """The options of the engine."""
        if self.model_fields_set.isdisjoint(_NAMES):  # a tenth of the time of parsing a short text
            return DEFAULT_OPTIONS
        side = self.truncation_direction or "right"
        truncate = "no" if self.truncate is False else side
        return Options(
            self.prompt_name, self.normalize, self.dimensions, truncate, instruction=self.instruction or None
        )


TEXT_OPTIONS = tuple(TextOptions.model_fields)
_NAMES = frozenset(TEXT_OPTIONS)

_TRUNCATION = ("truncate", "truncation_direction")
_OPTIONS_OF = {
    EMBED: TEXT_OPTIONS,
    EMBED_SPARSE: ("prompt_name", "input_type", "task", "instruction", *_TRUNCATION),
    SCORE: ("instruction", *_TRUNCATION),  # if its template has a place for one: the worker knows
    CLASSIFY: _TRUNCATION,
    PREDICT: (),
}
_MODELS = {EMBED_SPARSE: "a sparse encoder", SCORE: "a reranker", CLASSIFY: "a classifier", PREDICT: "a function"}


def option_error(name: str, op: str) -> InvalidRequestError:
    """Returns the error for an option of texts that an operation other than EMBED does not have."""
    return InvalidRequestError(f"{name}: {_MODELS[op]} has no such option: leave it out.", param=name)


def check_options(names: Collection[str], op: str) -> None:
    """Raises InvalidRequestError: one of these fields is an option of texts that an operation does not have."""
    for name in TEXT_OPTIONS:
        if name in names and name not in _OPTIONS_OF[op]:
            raise option_error(name, op)
