"""The prompts of a model: by name, and with an instruction in place of their task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuworker.backends.base import InputRefusedError
from gpuworker.backends.prompts import Prompts

QWEN = {"query": "Instruct: Given a web search query, retrieve passages\nQuery:", "document": ""}
MISTRAL = {"web": "Instruct: Search the web.\nQuery: ", "sts": "Instruct: Find alike texts.\nQ: ", "plain": "query: "}
GEMMA = {"web": "<instruct>Search the web.\n<query>"}


def prompts_of(prompts: dict[str, str], default: str | None = None) -> Prompts:
    """Returns the prompts of a model."""
    return Prompts(cast("Any", SimpleNamespace(prompts=prompts, default_prompt_name=default)))


@pytest.mark.parametrize(
    ("prompts", "default", "name", "expected"),
    [
        (QWEN, None, None, "Instruct: Do it.\nQuery:"),
        (QWEN, "document", None, "Instruct: Do it.\nQuery:"),
        (QWEN, None, "query", "Instruct: Do it.\nQuery:"),
        (MISTRAL, None, None, "Instruct: Do it.\nQuery: "),
        (MISTRAL, "sts", None, "Instruct: Do it.\nQ: "),
        (MISTRAL, None, "sts", "Instruct: Do it.\nQ: "),
        (GEMMA, None, None, "<instruct>Do it.\n<query>"),
    ],
)
def test_an_instruction_takes_the_place_of_the_task(
    prompts: dict[str, str], default: str | None, name: str | None, expected: str
) -> None:
    """In the prompt of that name, or the default one, or the first with a task."""
    assert prompts_of(prompts, default).find(name, "Do it.") == expected


@pytest.mark.parametrize(
    ("prompts", "name", "known"),
    [
        (QWEN, "document", "query"),
        (QWEN, "", "query"),
        (MISTRAL, "plain", "sts, web"),
        ({"query": "query: "}, None, "none"),
    ],
)
def test_a_prompt_without_a_task_takes_no_instruction(prompts: dict[str, str], name: str | None, known: str) -> None:
    """The error names those that do."""
    with pytest.raises(InputRefusedError, match=f"this model has {known}\\.$"):
        prompts_of(prompts).find(name, "Do it.")
