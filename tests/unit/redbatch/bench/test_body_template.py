"""Bodies of requests for any route."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from redbatch.bench.body_template import BodyTemplate, InvalidBodyError, read_template

REQUESTS = [("a", "b"), ("c", 'd "{number}"')]


def bodies(template: object, requests: list[tuple[str, ...]] | None = None) -> list[Any]:
    """Returns the bodies that a template gives for the texts of some requests."""
    return [json.loads(body) for body in BodyTemplate(json.dumps(template)).fill(requests or REQUESTS)]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ({"input": "{number}"}, [{"input": 0}, {"input": 1}]),
        ({"inputs": "{numbers}"}, [{"inputs": [0, 1]}, {"inputs": [2, 3]}]),
        ({"inputs": "{texts}", "n": 2}, [{"inputs": ["a", "b"], "n": 2}, {"inputs": ["c", 'd "{number}"'], "n": 2}]),
        (["query: {text} #{number}"], [["query: a #0"], ["query: c #1"]]),
        (
            {"query": "{text}", "texts": "{texts}"},
            [{"query": "a", "texts": ["b"]}, {"query": "c", "texts": [REQUESTS[1][1]]}],
        ),
        ({"{text}": [None, True, {"deep": "{text}"}]}, [{"{text}": [None, True, {"deep": text}]} for text in "ac"]),
    ],
)
def test_placeholders_become_values(template: object, expected: list[Any]) -> None:
    """A string that is a placeholder becomes the value, others contain it; a placeholder in a text is text."""
    assert bodies(template) == expected


def test_a_body_without_placeholders_is_one_request() -> None:
    """It is the same for all requests; all its characters are sent as they are."""
    assert list(BodyTemplate('{"text": "zwölf {x}"}').fill(REQUESTS)) == ['{"text": "zwölf {x}"}'.encode()]


def test_a_ranking_takes_a_text_more_than_its_inputs() -> None:
    """The query is a separate text."""
    assert BodyTemplate('["{text}", "{texts}"]').num_texts_more == 1
    assert BodyTemplate('["{texts}"]').num_texts_more == BodyTemplate('["{text}"]').num_texts_more == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"^it is not valid JSON \(line 1, column 1\)$"),
        ('{"a": [1,\n 2 3]}', r"^it is not valid JSON \(line 2, column 4\)$"),
        ("{'a': 7}", r"^it is not valid JSON: texts and names are in double quotes \(line 1, column 2\)$"),
        (f"[{'9' * 5_000}]", "^it is not valid JSON: it has a number of too many digits$"),
        (
            '{"input": {number}}',
            r'^it is not valid JSON: placeholders are in quotes: {"input": "{number}"} \(line 1, column 12\)$',
        ),
        ('["all of {texts}"]', "{texts} is a list"),
        ("@nowhere.json", r"@nowhere.json: the file cannot be read \(No such file or directory\)"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(text: str, message: str) -> None:
    """The message says what to write."""
    with pytest.raises(InvalidBodyError, match=message):
        read_template(text)


def test_options_without_an_effect_are_refused() -> None:
    """Texts that no request would have, and a number of inputs that no list has."""
    with pytest.raises(InvalidBodyError, match="which --inputs-per-request needs"):
        BodyTemplate('["{text}"]').check(2, texts_given=False)
    with pytest.raises(InvalidBodyError, match="which --texts needs"):
        BodyTemplate('["{number}"]').check(1, texts_given=True)
    BodyTemplate('["{texts}"]').check(2, texts_given=True)


def test_a_template_may_be_a_file(tmp_path: Path) -> None:
    """Its name follows an @."""
    (tmp_path / "body.json").write_text('{"inputs": "{texts}"}\n', encoding="utf-8")
    assert read_template(f"@{tmp_path}/body.json").placeholders == {"texts"}
