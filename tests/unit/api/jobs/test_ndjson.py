"""Texts that come as lines of JSON."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.jobs.inputs import Given
from api.jobs.ndjson import Lines
from shared.errors import InvalidRequest, TooLarge


def read(body: bytes, cuts: list[int], most_inputs: int = 100, most_chars: int = 50) -> list[Given]:
    """Returns the texts of a body that comes in pieces."""
    lines = Lines(most_inputs, most_chars)
    marks = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    found = [text for start, stop in pairwise(marks) for text in lines.feed(body[start:stop])]
    found += lines.end()
    assert lines.inputs == len(found)
    return found


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50), max_size=20),
    st.lists(st.integers(0, 10_000), max_size=10),
    st.booleans(),
    st.sampled_from([b"\n", b"\r\n", b"\n\n"]),
)
def test_texts_are_the_same_however_the_body_is_cut(
    texts: list[str], cuts: list[int], wrapped: bool, ending: bytes
) -> None:
    """As strings or objects, with a last line that ends or not."""
    lines = [json.dumps({"id": 7, "text": text} if wrapped else text).encode() for text in texts]
    assert read(ending.join(lines), cuts) == texts
    assert read(b"".join(line + ending for line in lines), cuts) == texts


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "Line 3 is not valid JSON"),
        (b"12", "Line 3: send"),
        (b'{"texts": ["a"]}', "Line 3: send"),
        (b'{"text": null}', "Line 3: send"),
        (b"[" * 100_000, "Line 3"),
    ],
)
def test_a_line_that_is_no_text_is_named(line: bytes, said: str) -> None:
    """With what may be sent instead; never with the line itself."""
    with pytest.raises((InvalidRequest, TooLarge), match=said):
        read(b'"a"\n\n' + line + b'\n"b"\n', [])


def test_a_text_that_cannot_be_run_fails_alone() -> None:
    """Empty, too long, or no text that UTF-8 can carry: the others go on."""
    found = read(b'"a"\n"' + b"b" * 51 + b'"\n""\n"c"\n', [])
    assert [each if isinstance(each, str) else each.code for each in found] == [
        "a",
        "too_large",
        "invalid_request",
        "c",
    ]


def test_a_line_that_is_far_too_long_is_named() -> None:
    """While it is still coming: it is not held."""
    lines = Lines(10, 50)
    with pytest.raises(TooLarge, match="Line 2 is too long"):
        lines.feed(b'"a"\n"' + b"b" * 10_000)


def test_too_many_texts() -> None:
    """Are told at the first that is too many."""
    assert len(read(b'"a"\n' * 5, [], most_inputs=5)) == 5
    with pytest.raises(TooLarge, match="over 5 texts"):
        read(b'"a"\n' * 6, [], most_inputs=5)
