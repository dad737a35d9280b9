"""The errors of invalid fields, on every route: in plain words, which say what the field takes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from api.dialects.cohere import CohereEmbedBody
from api.dialects.native import BatchBody, EmbedBody, RequestOptions
from api.dialects.openai import EmbeddingsBody
from api.dialects.parsing import invalid_body_error
from api.dialects.tei import SimilarityBody, TeiBody
from api.dialects.text_options import TextOptions
from api.dialects.vllm import ScoreBody
from api.jobs.schema import JobBody
from api.routes import DIALECTS

OTHER_BODIES: set[type[BaseModel]] = {BatchBody, JobBody, RequestOptions, TeiBody, TextOptions}
OF_ROUTES = {each.body_model for each in DIALECTS.values()}
BODIES = sorted(OTHER_BODIES | OF_ROUTES, key=lambda each: each.__name__)
LIBRARY_WORDS = ("valid", "required", "string", "boolean", "integer", "array", "dictionary", "input should")
KNOWN = {"body"}
for schema in (each.model_json_schema() for each in BODIES):
    KNOWN |= {name for each in (schema, *schema.get("$defs", {}).values()) for name in each.get("properties", ())}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just("x" * 300) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
FORMATS = "float, float16, int8, uint8, binary, ubinary or base64"
PART = "inputs[0].content[0]"
SIMILAR = {"source_sentence": "a", "sentences": ["b"]}


def message_of(model: type[BaseModel], values: object, *, is_query: bool = False) -> str:
    """Returns the client's error for values that the model refuses; empty for others."""
    try:
        model.model_validate_strings(values) if is_query else model.model_validate(values)
    except ValidationError as error:
        return invalid_body_error(error, model).message
    return ""


@pytest.mark.parametrize(
    ("model", "values", "message"),
    [
        (EmbedBody, {"truncate": "no"}, "truncate: send true or false."),
        (EmbedBody, {"dimensions": 0}, "dimensions: send a whole number from 1 to 65536."),
        (EmbedBody, {"dimensions": "8"}, "dimensions: send a whole number from 1 to 65536."),
        (EmbedBody, {"timeout_ms": 10**30}, "timeout_ms: send a whole number from 1 to 300000."),
        (EmbedBody, {"truncation_direction": "up"}, "truncation_direction: send left or right."),
        (EmbedBody, {"on_error": None}, 'on_error: send "fail" or "null".'),
        (EmbedBody, {"priority": 1}, "priority: send interactive or bulk."),
        (EmbedBody, {"prompt_name": 1}, "prompt_name: send a text."),
        (EmbedBody, {"model": "x" * 257}, "model: send at most 256 characters."),
        (EmbedBody, {"texts": ["a", 1]}, "texts[1]: send a text."),
        (EmbedBody, {"text": ["a", "b"]}, "text: send a text; for several, use texts."),
        (EmbedBody, {"texts": "a"}, "texts: send a list; for a single text, use text."),
        (JobBody, {"text": ["a"]}, "text: send a text; for several, use texts."),
        (JobBody, {"inputs": "a"}, "inputs: send a list; for a single input, use input."),
        (BatchBody, {"texts": "a"}, "texts: send a list."),
        (EmbedBody, [], "body: send an object."),
        (EmbeddingsBody, {}, "model: it is missing."),
        (ScoreBody, {"model": "m", "priority": []}, "priority: send a whole number, interactive or bulk."),
        (EmbeddingsBody, {"model": "m", "embedding_type": "int4"}, f"embedding_type: send {FORMATS}."),
        (CohereEmbedBody, {"model": "m", "embedding_types": ["int4"]}, f"embedding_types[0]: send {FORMATS}."),
        (CohereEmbedBody, {"model": "m", "embedding_types": []}, "embedding_types: send a list of at least 1."),
        (CohereEmbedBody, {"model": "m", "inputs": [{"content": [{"type": "image"}]}]}, f"{PART}.type: send text."),
        (SimilarityBody, {"inputs": SIMILAR, "parameters": True}, "parameters: send an object."),
        (
            SimilarityBody,
            {"inputs": SIMILAR, "parameters": {"truncate": 1}},
            "parameters.truncate: send true or false.",
        ),
        (SimilarityBody, {"inputs": {"source_sentence": "a"}}, "inputs.sentences: it is missing."),
        (SimilarityBody, {"inputs": {**SIMILAR, "sentences": "b"}}, "inputs.sentences: send a list."),
    ],
)
def test_an_invalid_field_has_an_error_in_plain_words(model: type[BaseModel], values: object, message: str) -> None:
    """It names the field, also one within another, and says what this takes, with its bounds."""
    assert message_of(model, values) == message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"truncate": "maybe"}, "truncate: send true or false."),
        ({"dimensions": "x"}, "dimensions: send a whole number from 1 to 65536."),
        ({"truncation_direction": "up"}, "truncation_direction: send left or right."),
    ],
)
def test_a_parameter_of_a_query_has_the_same_error(values: dict[str, str], message: str) -> None:
    """Its value is a text, whatever the option takes."""
    assert message_of(TextOptions, values, is_query=True) == message


@given(st.data())
def test_no_error_has_words_of_the_library(data: st.DataObject) -> None:
    """Whatever the route, the field and the value, the error says what to send in words of this project."""
    model = data.draw(st.sampled_from(BODIES))
    name = data.draw(st.sampled_from(sorted(model.model_fields)))
    values: Any = {"model": "m", "inputs": SIMILAR, name: data.draw(VALUES)}
    field, _, words = message_of(model, data.draw(st.sampled_from([values, values[name]]))).partition(": ")
    if field:
        assert all(part in KNOWN for part in re.findall(r"[^].[0-9]+", field))
        assert re.match("send .", words) or words == "it is missing."
        assert not [each for each in LIBRARY_WORDS if each in words.lower()]
