"""Texts in lines of JSON."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.parsing import MAX_PARTS
from api.dispatch.size_limits import InputLimit
from api.jobs.inputs import JobInput, Pair
from api.jobs.kinds import PAIRS, VALUES
from api.jobs.ndjson import NdjsonReader
from shared.errors import InvalidRequestError, RequestError, TooLargeError
from shared.messages import CLASSIFY, EMBED, PREDICT, SCORE

LIMIT = InputLimit(50, "max_input_bytes of the gateway")


def read(body: bytes, cuts: list[int], max_inputs: int = 100, max_chars: int = 50) -> list[JobInput]:
    """Returns the texts of a body that arrives in pieces, cut at these offsets."""
    lines = NdjsonReader(max_inputs, max_chars, LIMIT)
    marks = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    texts = [text for start, stop in pairwise(marks) for text in lines.feed(body[start:stop])]
    texts += lines.end()
    assert lines.inputs == len(texts)
    return texts


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50), max_size=20),
    st.lists(st.integers(0, 10_000), max_size=10),
    st.booleans(),
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([b"", b"\n", b" \n\r\n", b"\t"]),
)
def test_texts_are_the_same_however_the_body_is_cut(
    texts: list[str], cuts: list[int], wrapped: bool, ending: bytes, behind: bytes
) -> None:
    """The texts do not depend on the cuts, on strings or objects, on an end of the last line, or on empty lines."""
    lines = [json.dumps({"text": text} if wrapped else text).encode() for text in texts]
    assert read(ending.join(lines), cuts) == texts
    assert read(b"".join(line + ending for line in lines) + behind, cuts) == texts


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "Line 3 is not valid JSON"),
        (b'{"text": "a"}{"text": "b"}', "Line 3 .* line ends.*--data-binary"),
        (b'"\xc3\xa9" "b" "c"', "Line 3 .* line ends.*--data-binary"),
        (b"12", "Line 3: send"),
        (b'{"texts": ["a"]}', "Line 3: texts: there is no such field; did you mean text\\?"),
        (b'{"text": "a", "id": 7}', "Line 3: id: there is no such field; the fields are text, query, input"),
        (b'{"text": "a", "my own text": 7}', "Line 3: body: there is no such field"),
        (b'{"text": "a", "prompt_name": "query"}', "Line 3: prompt_name is for the whole job: send it in the query"),
        (b'{"input": 1, "options": {}}', "Line 3: options: there is no such field"),
        (b"{}", "Line 3: send"),
        (b'{"query": "a"}', "Line 3: send"),
        (b'{"query": "a", "text": "b", "input": 1}', "Line 3: send"),
        (b'{"query": 1, "text": "b"}', "Line 3: send"),
        (b'{"query": "a", "text": "b"}', "Line 3: send lines of one kind"),
        (b'{"text": null}', "Line 3: send"),
        (b"[" * 100_000, "Line 3"),
    ],
)
def test_the_error_names_a_line_that_is_not_a_text(line: bytes, message: str) -> None:
    """The message says what a line may be, and does not repeat the line."""
    with pytest.raises((InvalidRequestError, TooLargeError), match=message):
        read(b'"a"\n"c"\n' + line + b'\n"b"\n', [])


@pytest.mark.parametrize("start", [b"", b" ", b"  ", b"   "])
def test_a_body_without_line_ends_is_no_long_text(start: bytes) -> None:
    """The error says what is missing, also before the end of the body, wherever its head is cut."""
    with pytest.raises(InvalidRequestError, match=r"Line 1 .* line ends.*--data-binary"):
        NdjsonReader(100, 50, LIMIT).feed(start + b'"\xc3\xa9"' * 20_000)


@pytest.mark.parametrize("empty", [b"\n", b"\r\n", b" \t\n", b"\n\n"])
@pytest.mark.parametrize("before", [b"", b'"a"\n'])
@pytest.mark.parametrize("cuts", [[], [1], [2], [4], [5]])
def test_an_empty_line_between_others_is_refused(empty: bytes, before: bytes, cuts: list[int]) -> None:
    """Results are counted by inputs: the client would read those behind it as those of other lines."""
    with pytest.raises(InvalidRequestError, match=f"Line {1 + bool(before)} is empty"):
        read(before + empty + b'"b"\n', cuts)


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
    reader = NdjsonReader(10, 50, LIMIT)
    assert reader.feed(b'{"input": {"a": [1, null]}}\n{"input": null}\n') == ['{"a":[1,null]}', "null"]
    assert reader.kind == VALUES
    for line in (b'"a"\n', b'{"text": "a"}\n'):
        with pytest.raises(InvalidRequestError, match="lines of one kind"):
            reader.feed(line)
    with pytest.raises(InvalidRequestError, match="Line 5: send"):
        reader.feed(b'{"text": "a", "input": 1}\n')
    [error] = reader.feed(b'{"input": "%s"}\n' % (b"x" * 50))
    assert isinstance(error, TooLargeError)
    assert f"52 bytes, over the limit of 50: send less, or raise the setting {LIMIT.setting}." in error.message


def test_lines_may_hold_pairs() -> None:
    """An empty text is one, as on /rerank; a pair with an invalid text fails alone."""
    reader = NdjsonReader(10, 50, LIMIT)
    lines = [("a", "b"), ("a", ""), ("", "b"), ("a" * 51, "b"), ("a", "b" * 51)]
    pairs = reader.feed(b"".join(json.dumps({"query": q, "text": t}).encode() + b"\n" for q, t in lines))
    assert reader.kind == PAIRS
    assert pairs[:2] == [Pair("a", "b"), Pair("a", "")]
    assert [each.code for each in pairs[2:] if isinstance(each, RequestError)] == [
        "invalid_request",
        "too_large",
        "too_large",
    ]
    with pytest.raises(InvalidRequestError, match="lines of one kind"):
        reader.feed(b'"a"\n')


def test_the_error_names_a_line_that_is_far_too_long() -> None:
    """The line is refused before its end has arrived, so that it is not held in memory."""
    lines = NdjsonReader(10, 50, LIMIT)
    with pytest.raises(TooLargeError, match="Line 2 is too long"):
        lines.feed(b'"a"\n"' + b"b" * 10_000)


TEXT_LINE, VALUE_LINE = 12 * 1_000 + 4_096, 6 * 10_000 + 4_096
PAIR_LINE = 2 * 12 * 1_000 + 4_096
OF_TEXTS = "at most 1000 characters: .* max_input_chars"
OF_VALUES = "at most 10000 bytes: .* raise the setting max_x of y"


@pytest.mark.parametrize(
    ("ops", "first", "length", "message"),
    [
        ({EMBED}, b"", TEXT_LINE, OF_TEXTS),
        ({PREDICT}, b"", VALUE_LINE, OF_VALUES),
        ({SCORE, CLASSIFY}, b"", PAIR_LINE, OF_TEXTS),
        ({PREDICT, "embed_all"}, b'"a"\n', TEXT_LINE, OF_TEXTS),
        (set(), b"", VALUE_LINE, OF_VALUES),
        (set(), b'"a"\n', TEXT_LINE, OF_TEXTS),
        (set(), b'{"input": 1}\n', VALUE_LINE, OF_VALUES),
    ],
)
def test_the_bound_of_a_line_is_that_of_what_the_job_holds(
    ops: set[str], first: bytes, length: int, message: str
) -> None:
    """It follows the first line, and before that what the workers take; the message names what bounds it."""
    reader = NdjsonReader(10, 1_000, InputLimit(10_000, "max_x of y"), ops)
    reader.feed(first)
    assert reader.feed(b" " * length) == []
    assert reader.rest_bytes == length
    with pytest.raises(TooLargeError, match=rf"Line {2 if first else 1} is too long: .*{message}"):
        reader.feed(b" ")


def test_escaped_and_binary_inputs_of_the_full_size_fit() -> None:
    """Clients may escape all characters that are not ASCII, and base64 takes a third more."""
    for value in ("\u00e9" * 24, {"base64": "A" * 4 * 16}):
        reader = NdjsonReader(10, 1, LIMIT, {PREDICT})
        assert reader.feed(json.dumps({"input": value}).encode()) == []
        [each] = reader.end()
        assert not isinstance(each, RequestError)


def test_the_parts_of_a_long_line_are_bounded() -> None:
    """A line of millions of numbers would occupy the gateway for seconds."""
    reader = NdjsonReader(10, 50, InputLimit(2**23, "max_x of y"), {PREDICT})
    reader.feed(b'{"input": 1}\n')
    with pytest.raises(TooLargeError, match=rf"Line 2: There are too many .* over {MAX_PARTS}"):
        reader.feed(b'{"input": [' + b"1," * MAX_PARTS + b"1, 2]}\n")


def test_the_number_of_texts_is_limited() -> None:
    """The first text over the limit raises the error."""
    assert len(read(b'"a"\n' * 5, [], max_inputs=5)) == 5
    with pytest.raises(TooLargeError, match="over 5 inputs"):
        read(b'"a"\n' * 6, [], max_inputs=5)
