"""Which requests become jobs, and which of their options a job keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from api.dialects.headers import prefers_async
from api.dialects.job_options import JobOptions, parse_job_options
from api.dialects.native import EmbedBody
from api.dialects.openai import EmbeddingsBody
from api.dialects.tei import SimilarityBody, TeiBody
from api.routes import DIALECTS
from shared.errors import InvalidRequestError
from shared.keys import BULK, INTERACTIVE


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], False),
        (["respond-async"], True),
        (["Respond-Async"], True),
        (["wait=10,respond-async;x=y"], True),
        (["wait=10", ' respond-async="" '], True),
        (["respond-asynchronously"], False),
        (["wait=10"], False),
        (['note="a, respond-async, b"'], False),
        (['note="a \\", respond-async", respond-async'], True),
    ],
)
def test_the_preference_is_read_as_rfc_7240_defines_it(values: list[str], expected: bool) -> None:
    """Names of preferences ignore case; values, parameters and quoted commas are no preferences."""
    assert prefers_async(values) is expected


@pytest.mark.timeout(5)
def test_an_unclosed_quote_is_read_in_linear_time() -> None:
    """A header of 60 KB that opens a quote again and again takes no minutes; the quote ends with the header."""
    assert prefers_async(['\\"' * 30_000, "respond-async"])
    assert not prefers_async(['note="a, respond-async'])


@pytest.mark.parametrize(
    ("fields", "headers", "expected"),
    [
        ({}, {}, JobOptions(BULK, None)),
        ({"priority": "interactive", "timeout_ms": 5}, {"x-timeout-ms": "7"}, JobOptions(INTERACTIVE, 5)),
        ({"priority": None}, {"x-priority": "interactive", "x-timeout-ms": "7"}, JobOptions(INTERACTIVE, 7)),
        ({"on_error": "null"}, {}, JobOptions(BULK, None)),
        ({"priority": 5}, {"x-priority": "interactive"}, JobOptions(BULK, None)),
        ({"priority": 0}, {"x-priority": "bulk"}, JobOptions(INTERACTIVE, None)),
    ],
)
def test_fields_take_precedence_over_headers(fields: dict[str, Any], headers: dict[str, str], expected: object) -> None:
    """Lane and time limit come from the body, else from headers; by default a job is in bulk, without a time limit."""
    assert parse_job_options(json.dumps({"text": "a"} | fields).encode(), headers, EmbedBody) == expected


@pytest.mark.parametrize(
    ("model", "fields", "name"),
    [
        (EmbedBody, {"dimension": 3}, "dimension"),
        (EmbedBody, {"on_error": "fail"}, "on_error"),
        (EmbeddingsBody, {"encoding_format": "base64"}, "encoding_format"),
        (TeiBody, {"timeout_ms": 5}, "timeout_ms"),
        (SimilarityBody, {"parameters": {"truncate": True, "normalize": False}}, "parameters.normalize"),
    ],
)
def test_what_a_job_would_drop_is_refused(model: type[BaseModel], fields: dict[str, Any], name: str) -> None:
    """The error names the field, also one inside an object."""
    with pytest.raises(InvalidRequestError, match=f"^{name}: ") as caught:
        parse_job_options(json.dumps(fields).encode(), {}, model)
    assert caught.value.param == name


def test_the_ways_to_avoid_on_error_fail_are_told_apart() -> None:
    """With null, an invalid input fails alone; without the field, it makes the request fail."""
    with pytest.raises(InvalidRequestError, match='send "null", or leave it out to have a request with'):
        parse_job_options(b'{"text": "a", "on_error": "fail"}', {}, EmbedBody)


def test_the_nearest_field_is_suggested() -> None:
    """The error for an unknown field names the nearest one of the same object."""
    for fields, name in (({"promptname": "a"}, "prompt_name"), ({"parameters": {"truncat": 1}}, "parameters.truncate")):
        model = SimilarityBody if "parameters" in fields else EmbeddingsBody
        with pytest.raises(InvalidRequestError, match=f"did you mean {name}\\?"):
            parse_job_options(json.dumps(fields).encode(), {}, model)


def test_each_dialect_says_which_fields_its_bodies_have() -> None:
    """Otherwise a job could not refuse the others."""
    for dialect in (each for each in DIALECTS.values() if each.becomes_jobs):
        assert set(dialect.body_model.model_fields) & {"text", "texts", "input", "inputs", "ids"}
