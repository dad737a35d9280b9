"""Texts in lines of JSON."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.jobs.inputs import JobInput
from api.jobs.ndjson import NdjsonReader
from shared.errors import InvalidRequestError, RequestError, TooLargeError
from shared.messages import PREDICT


def read(body: bytes, cuts: list[int], max_inputs: int = 100, max_chars: int = 50) -> list[JobInput]:
    """Returns the texts of a body that arrives in pieces, cut at these offsets."""
    lines = NdjsonReader(max_inputs, max_chars, max_chars)
    marks = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    texts = [text for start, stop in pairwise(marks) for text in lines.feed(body[start:stop])]
    texts += lines.end()
    assert lines.inputs == len(texts)
    return texts


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50), max_size=20),
    st.lists(st.integers(0, 10_000), max_size=10),
    st.booleans(),
    st.sampled_from([b"\n", b"\r\n", b"\n\n"]),
)
def test_texts_are_the_same_however_the_body_is_cut(
    texts: list[str], cuts: list[int], wrapped: bool, ending: bytes
) -> None:
    """The texts do not depend on the cuts, on strings or objects, or on an end of the last line."""
    lines = [json.dumps({"text": text} if wrapped else text).encode() for text in texts]
    assert read(ending.join(lines), cuts) == texts
    assert read(b"".join(line + ending for line in lines), cuts) == texts


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "Line 3 is not valid JSON"),
        (b"12", "Line 3: send"),
        (b'{"texts": ["a"]}', "Line 3: texts: there is no such field; did you mean text\\?"),
        (b'{"text": "a", "id": 7}', "Line 3: id: there is no such field; the fields are text, input"),
        (b'{"text": "a", "my own text": 7}', "Line 3: body: there is no such field"),
        (b'{"text": "a", "prompt_name": "query"}', "Line 3: prompt_name is for the whole job: send it in the query"),
        (b'{"input": 1, "options": {}}', "Line 3: options: there is no such field"),
        (b"{}", "Line 3: send"),
        (b'{"text": null}', "Line 3: send"),
        (b"[" * 100_000, "Line 3"),
    ],
)
def test_the_error_names_a_line_that_is_not_a_text(line: bytes, message: str) -> None:
    """The message says what a line may be, and does not repeat the line."""
    with pytest.raises((InvalidRequestError, TooLargeError), match=message):
        read(b'"a"\n\n' + line + b'\n"b"\n', [])


def test_an_invalid_text_fails_alone() -> None:
    """A text that is empty, too long or not valid Unicode becomes an error, and the other texts are kept."""
    texts = read(b'"a"\n"' + b"b" * 51 + b'"\n""\n"c"\n', [])
    assert [each.code if isinstance(each, RequestError) else each for each in texts] == [
        "a",
        "too_large",
        "invalid_request",
        "c",
    ]


def test_lines_may_hold_inputs_of_a_function() -> None:
    """`input` is any JSON value, which the job keeps as JSON; the first line decides what all lines hold."""
    reader = NdjsonReader(10, 50, 50)
    assert reader.feed(b"\n") == []
    assert reader.feed(b'{"input": {"a": [1, null]}}\n{"input": null}\n') == ['{"a":[1,null]}', "null"]
    assert reader.op == PREDICT
    for line in (b'"a"\n', b'{"text": "a"}\n'):
        with pytest.raises(InvalidRequestError, match="either texts or inputs"):
            reader.feed(line)
    with pytest.raises(InvalidRequestError, match="Line 6: send"):
        reader.feed(b'{"text": "a", "input": 1}\n')
    assert [getattr(each, "code", "") for each in reader.feed(b'{"input": "%s"}\n' % (b"x" * 50))] == ["too_large"]


def test_the_error_names_a_line_that_is_far_too_long() -> None:
    """The line is refused before its end has arrived, so that it is not held in memory."""
    lines = NdjsonReader(10, 50, 50)
    with pytest.raises(TooLargeError, match="Line 2 is too long"):
        lines.feed(b'"a"\n"' + b"b" * 10_000)


def test_the_number_of_texts_is_limited() -> None:
    """The first text over the limit raises the error."""
    assert len(read(b'"a"\n' * 5, [], max_inputs=5)) == 5
    with pytest.raises(TooLargeError, match="over 5 inputs"):
        read(b'"a"\n' * 6, [], max_inputs=5)
