"""The body of POST /jobs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.dialects.parsing import invalid_body_error, parse_object, texts_of
from api.dialects.request import MAX_MODEL
from shared.codec import MAX_DIM, MAX_PROMPT_NAME
from shared.errors import InvalidRequestError
from shared.messages import Options

NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
"""Content types of a body of lines; any other body is one JSON document."""

HINT = ' Send {"texts": ["...", ...]}, or {"inputs": [...]} for a function.'
TEXT_OPTIONS = ("prompt_name", "normalize", "dimensions", "truncate", "truncation_direction")
INPUT_FIELDS = ("input", "inputs")


class JobBody(BaseModel):
    """Body of POST /jobs, unless its content type is one of lines."""

    model_config = ConfigDict(
        strict=True, extra="forbid", json_schema_extra={"examples": [{"texts": ["one", "two"]}, {"inputs": [7, 8]}]}
    )

    text: str | None = Field(default=None, description="One text.", examples=["Hello, world"])
    texts: list[str] | None = Field(default=None, description="Several texts.", fail_fast=True)
    input: Any = Field(default=None, description="One input of a function: any JSON value, also null.")
    inputs: list[Any] | None = Field(default=None, description="Several inputs of a function.")
    priority: Literal["interactive", "bulk"] | None = Field(
        default=None, description="bulk (the default) or interactive. Overrides the header X-Priority."
    )
    model: str | None = Field(
        default=None, max_length=MAX_MODEL, description="As on /embed; overrides the header X-Model."
    )
    prompt_name: str | None = Field(
        default=None, max_length=MAX_PROMPT_NAME, description="For texts: one of the model's prompts, as query."
    )
    normalize: bool | None = Field(
        default=None, description="For texts: whether to normalize vectors to length 1; by default as the model does."
    )
    dimensions: int | None = Field(
        default=None, ge=1, le=MAX_DIM, description="For texts: truncate vectors to this many dimensions."
    )
    truncate: bool = Field(
        default=True, description="For texts: whether to truncate a text that is too long for the model."
    )
    truncation_direction: Literal["left", "right"] = Field(
        default="right", description="For texts: side from which to truncate."
    )

    @property
    def is_for_function(self) -> bool:
        """Whether the body holds inputs of a function, not texts."""
        return not self.model_fields_set.isdisjoint(INPUT_FIELDS)

    @property
    def options(self) -> Options:
        """How texts become vectors."""
        truncate = self.truncation_direction if self.truncate else "no"
        return Options(self.prompt_name, self.normalize, self.dimensions, truncate)

    def values(self) -> list[Any]:
        """Returns the inputs of a function, or the texts. Raises InvalidRequestError: there are none, or both."""
        given = self.model_fields_set
        if not self.is_for_function:
            return texts_of(self.text, self.texts)
        if len(given & {"text", "texts", *INPUT_FIELDS}) > 1:
            raise InvalidRequestError("Send text, texts, input or inputs: one of them.")
        for name in TEXT_OPTIONS:
            if name in given:
                raise InvalidRequestError(f"{name}: a function has no such option: leave it out.", param=name)
        if "input" in given:
            return [self.input]
        if not self.inputs:
            raise InvalidRequestError("inputs: send a list with at least one input.", param="inputs")
        return self.inputs


def parse_job_body(body: bytes) -> JobBody:
    """Returns the fields of a body.

    Raises:
        InvalidRequestError: the body is malformed, or has an unknown field; the message names it.
        TooLargeError: the body holds too many parts (see `parse_object`).
    """
    try:
        return JobBody.model_validate(parse_object(body))
    except ValidationError as error:
        raise invalid_body_error(error, HINT) from None
