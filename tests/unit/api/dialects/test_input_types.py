"""Which prompt of a model an input type is."""

from __future__ import annotations

import pytest

from api.dialects.input_types import prompt_of
from shared.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("input_type", "prompts", "name"),
    [
        ("query", ("document", "query"), "query"),
        ("search_query", ("document", "query"), "query"),
        ("retrieval.query", ("document", "query"), "query"),
        ("search_document", ("passage", "query"), "passage"),
        ("search_document", ("document", "search_document"), "search_document"),
        ("clustering", ("clustering", "query"), "clustering"),
        ("s2p_query", ("s2p_query",), "s2p_query"),  # the model's own name
        ("search_query", (), ""),  # it reads both alike
        ("passage", (), ""),
    ],
)
def test_an_input_type_is_the_prompt_of_its_purpose(input_type: str, prompts: tuple[str, ...], name: str) -> None:
    """Its own name goes first, then other names of the purpose."""
    assert prompt_of(input_type, prompts, prompts) == name


def test_prompts_with_a_text_go_first() -> None:
    """Empty ones that the library has added do not hide them."""
    prompts = ("document", "passage", "query")
    assert prompt_of("document", prompts, ("passage",)) == "passage"
    assert prompt_of("document", prompts, ("document", "passage")) == "document"
    assert prompt_of("search_query", prompts, ("passage",)) == "query"


@pytest.mark.parametrize(
    ("input_type", "prompts", "known"),
    [
        ("classification", ("query", "document"), "document, query"),
        ("query", ("document",), "document"),
        ("classification", (), "none"),
        ("secret text", (), "none"),
    ],
)
def test_a_model_without_the_prompt_refuses(input_type: str, prompts: tuple[str, ...], known: str) -> None:
    """The error lists the prompts, and does not repeat what the client sent."""
    with pytest.raises(InvalidRequestError) as caught:
        prompt_of(input_type, prompts, prompts)
    assert caught.value.message == f"input_type: this model has no prompt for it; it has {known}."
    assert caught.value.param == "input_type"
