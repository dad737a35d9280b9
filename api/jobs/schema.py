"""The body of POST /jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.dialects.parsing import invalid_body_error, parse_object, texts_of
from api.dialects.request import MAX_MODEL, TIMEOUT_HEADER
from api.dialects.strict_body import unknown_parameter_error
from api.dialects.text_options import TextOptions, check_options
from api.jobs.kinds import PAIRS, TEXTS, VALUES
from shared.errors import InvalidRequestError

NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
"""Content types of a body of lines; any other body is one JSON document."""

LINE_HEADERS = {"model": "X-Model", "priority": "X-Priority"}
"""The headers that stand for fields of a JSON document if the body is one of lines."""

HINT = (
    ' Send {"texts": ["...", ...]}, {"query": "...", "documents": ["...", ...]} for a reranker, or {"inputs": [...]} '
    "for a function."
)
INPUT_FIELDS, PAIR_FIELDS = ("input", "inputs"), ("query", "documents")
NO_TIMEOUT = (
    "leave it out: a job on /jobs has the gateway's job_timeout_s. "
    "A request of another route with Prefer: respond-async may have it."
)


class JobBody(TextOptions):
    """Body of POST /jobs, unless its content type is one of lines.

    The inputs of a function have no options; pairs have those of truncation.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"texts": ["one", "two"]},
                {"query": "a pet", "documents": ["a dog", "a car"], "model": "my-reranker"},
                {"inputs": [7, 8]},
            ]
        }
    )

    text: str | None = Field(default=None, description="One text.", examples=["Hello, world"])
    texts: list[str] | None = Field(default=None, description="Several texts.", fail_fast=True)
    query: str | None = Field(default=None, description="What a reranker scores `documents` by.")
    documents: list[str] | None = Field(default=None, description="The texts to score, with `query`.", fail_fast=True)
    input: Any = Field(default=None, description="One input of a function: any JSON value, also null.")
    inputs: list[Any] | None = Field(default=None, description="Several inputs of a function.")
    priority: Literal["interactive", "bulk"] | None = Field(
        default=None, description="bulk (the default) or interactive. Overrides the header X-Priority."
    )
    model: str | None = Field(
        default=None, max_length=MAX_MODEL, description="As on /embed; overrides the header X-Model."
    )

    def check_fields(self, model: type[BaseModel] | None = None) -> None:
        """Raises InvalidRequestError: as for any body; the error of `timeout_ms`, which other routes take, says why."""
        if "timeout_ms" in (self.model_extra or ()):
            raise InvalidRequestError(f"timeout_ms: {NO_TIMEOUT}", param="timeout_ms")
        super().check_fields(model)

    @property
    def kind(self) -> str:
        """The kind of the inputs, of api.jobs.kinds.KINDS."""
        given = self.model_fields_set
        if not given.isdisjoint(INPUT_FIELDS):
            return VALUES
        return TEXTS if self.query is None and self.documents is None else PAIRS

    def values(self) -> list[Any]:
        """Returns the inputs of a function, the texts, or the documents.

        Raises InvalidRequestError: there are none, or several kinds, or the kind lacks an option.
        """
        given, kind = self.model_fields_set, self.kind
        texts = {name for name in ("text", "texts") if getattr(self, name) is not None}
        fields = given & {"text", "texts", *INPUT_FIELDS, *PAIR_FIELDS} if kind == VALUES else texts
        if len(fields) != (kind != PAIRS):
            raise InvalidRequestError("Send text, texts, input, inputs, or query with documents: one of them.")
        if kind == TEXTS:
            return texts_of(self.text, self.texts)
        check_options(given, kind)
        if kind == PAIRS:
            if self.query is None or not self.documents:
                raise InvalidRequestError("Send a query, and documents: a list with at least one text.")
            return self.documents
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
        fields = JobBody.model_validate(parse_object(body, exact=True))
    except ValidationError as error:
        raise invalid_body_error(error, JobBody, HINT) from None
    fields.check_fields()
    return fields


def parse_query(query: Mapping[str, str]) -> TextOptions:
    """Returns the options of texts in lines, from the query of the request.

    Raises:
        InvalidRequestError: a parameter is unknown, malformed, or has to be a header.
    """
    if "query" in query:
        message = 'query: send it in each line, as {"query": "...", "text": "..."}.'
        raise InvalidRequestError(message, param="query")
    for name, header in LINE_HEADERS.items():
        if name in query:
            raise InvalidRequestError(f"{name}: with a body of lines, send the header {header}.", param=name)
    try:
        fields = TextOptions.model_validate_strings(dict(query))
    except ValidationError as error:
        raise invalid_body_error(error, TextOptions) from None
    for name in fields.model_extra or ():
        raise unknown_parameter_error(name, TextOptions.model_fields)
    return fields


def check_no_timeout(headers: Mapping[str, str]) -> None:
    """Raises InvalidRequestError: a request has a time limit, which POST /jobs takes from no client."""
    if TIMEOUT_HEADER in headers:
        raise InvalidRequestError(f"X-Timeout-Ms: {NO_TIMEOUT}")
