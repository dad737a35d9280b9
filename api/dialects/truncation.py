"""How much is read of a text or a pair, as bodies of several APIs name it; and what answers say of it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from api.dialects.parsing import one_of
from shared.codec import MAX_CUT_TOKENS
from shared.messages import Options

if TYPE_CHECKING:
    from api.dialects.request import InferenceResult

Direction = Literal["Left", "left", "Right", "right"]
"""TEI's names of the side from which to truncate."""


class CutFields(BaseModel):
    """How much is read of a text or a pair, as the bodies of vLLM and TEI name it."""

    truncate_prompt_tokens: Annotated[int, Field(ge=1, le=MAX_CUT_TOKENS)] | Literal[-1] | None = Field(
        default=None,
        description="Maximum tokens that are read of a text or pair, with special tokens; -1: the model's own maximum.",
    )
    truncation_side: Literal["left", "right"] = Field(default="right", description="Side from which to truncate.")
    truncate: bool = Field(
        default=True, description="Whether to truncate what is too long for the model; false makes it an error."
    )
    truncation_direction: Direction | None = Field(default=None, description="TEI's name of truncation_side.")

    @property
    def options(self) -> Options:
        """The options of the engine. Raises InvalidRequestError: two fields say different things."""
        tokens = self.truncate_prompt_tokens
        side = one_of(self, "truncation_side", "truncation_direction", key=str.lower).lower()
        return Options(truncate=side if self.truncate else "no", max_tokens=None if tokens == -1 else tokens)


def with_truncated(usage: dict[str, Any], result: InferenceResult) -> dict[str, Any]:
    """Returns the usage in an answer, also with the indices of the inputs that were truncated, if there are any."""
    return usage | {"truncated": result.truncated} if result.truncated else usage


def with_warnings(meta: dict[str, Any], result: InferenceResult) -> dict[str, Any]:
    """Returns the meta of an answer in Cohere's format, also with a warning if inputs were truncated."""
    if not result.truncated:
        return meta
    return meta | {"warnings": [f"Truncated to the maximum length: {', '.join(map(str, result.truncated))}."]}
