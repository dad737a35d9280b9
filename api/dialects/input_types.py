"""What a text is for (`input_type`, `task`), in the words of several APIs, as one of the model's prompts. Pure.

Cohere's input types, Voyage's and Jina's tasks name the same few purposes. Each model of sentence-transformers has
different names for its prompts, so the first name of a purpose that the model has is taken.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import BaseModel, Field

from api.dialects.parsing import CombinationError, one_of
from shared.codec import MAX_INSTRUCTION

MAX_INPUT_TYPE = 64

PURPOSES: tuple[tuple[str, ...], ...] = (
    ("query", "search_query", "retrieval.query"),
    ("document", "passage", "search_document", "retrieval.passage", "corpus"),
    ("classification",),
    ("clustering", "separation"),
    ("text-matching", "sts"),
    ("code.query", "code_query"),
    ("code.passage", "code_document"),
)
"""The names of each purpose: of input types and tasks, and of prompts."""

SUFFIXES = ("query", "passage")
"""After the name of a model and a dash: what the texts of a request are for."""

SYMMETRIC = PURPOSES[:2]
"""The purposes for which a model without any prompts has the same vectors: it reads both alike."""


class PurposeFields(BaseModel):
    """What the texts of a request for vectors are for."""

    input_type: str | None = Field(
        default=None,
        max_length=MAX_INPUT_TYPE,
        description="What the texts are for, as query or document: the model's prompt for it goes before them.",
    )
    task: str | None = Field(
        default=None, max_length=MAX_INPUT_TYPE, description="Jina's name of input_type, as retrieval.query."
    )
    instruction: str | None = Field(
        default=None,
        max_length=MAX_INSTRUCTION,
        description="What the model is to do, in words: in place of the task in its prompt, as `Instruct: ...`.",
    )

    @property
    def purpose(self) -> str | None:
        """The input type. Raises CombinationError: both fields are set, and differ."""
        purpose: str | None = one_of(self, "input_type", "task", key=_names_of)
        return purpose


def _names_of(input_type: str) -> tuple[str, ...]:
    """Returns all names of the purpose that an input type stands for; that of a prompt alone for the prompt."""
    return next((names for names in PURPOSES if input_type in names), (input_type,))


def split_suffix(model: str) -> tuple[str, str] | None:
    """Returns the name of a model without a suffix that says what texts are for, and that; None if it has none.

    Clients of NVIDIA NIM name a model so: `model-query`, `model-passage`.
    """
    name, _, suffix = model.rpartition("-")
    return (name, suffix.lower()) if name and suffix.lower() in SUFFIXES else None


def prompt_of(input_type: str, prompts: Collection[str], filled: Collection[str]) -> str:
    """Returns the name of the prompt for an input type; "" for no prompt.

    Args:
        input_type: what the client says that its texts are for; also the name of a prompt.
        prompts: names of the model's prompts.
        filled: those of them with a text, which go first: sentence-transformers adds an empty `document` to a model
            whose prompt for documents is called `passage`.

    Raises:
        CombinationError: the model has no prompt for it.
    """
    purpose = _names_of(input_type)
    for names in (filled, prompts):
        for name in (input_type, *purpose):
            if name in names:
                return name
    if not prompts and purpose in SYMMETRIC:
        return ""
    known = ", ".join(sorted(prompts)) or "none"
    raise CombinationError(f"input_type: this model has no prompt for it; it has {known}.", param="input_type")
