"""Which prompt of a model an input type is."""

from __future__ import annotations

import pytest

from api.dialects.input_types import prompt_of, split_suffix
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


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("nv-embed-query", ("nv-embed", "query")),
        ("nvidia/NV-Embed-Passage", ("nvidia/NV-Embed", "passage")),
        ("nv-embed", None),
        ("-query", None),
        ("query", None),
        ("nv-embed-document", None),
    ],
)
def test_the_name_of_a_model_may_end_with_an_input_type(model: str, expected: tuple[str, str] | None) -> None:
    """As clients of NVIDIA NIM write it."""
    assert split_suffix(model) == expected
