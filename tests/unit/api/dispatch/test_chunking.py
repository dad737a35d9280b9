"""Where a long text is cut: the chunks have all of it, none is too long, and words stay whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from api.dialects.request import Span
from api.dispatch.chunking import spans_of


def offsets_of(text: str) -> NDArray[np.int64]:
    """Returns the places of tokens of at most three characters of a word, in bytes of UTF-8."""
    offsets, at = [], 0
    for word in text.split(" "):
        for start in range(0, len(word), 3):
            begin = at + len(word[:start].encode())
            offsets.append((begin, begin + len(word[start : start + 3].encode())))
        at += len(word.encode()) + 1
    return np.array(offsets, dtype=np.int64).reshape(-1, 2)


@given(st.text(alphabet="aé漢🙂 ", max_size=80), st.integers(1, 9))
def test_the_chunks_of_a_text_are_the_text(text: str, max_tokens: int) -> None:
    """In order and without gaps; each has as many tokens as the model reads, or fewer."""
    offsets = offsets_of(text)
    spans = spans_of(text, offsets, max_tokens)
    assert "".join(text[each.start : each.stop] for each in spans) == text
    assert [each.start for each in spans] == [0, *(each.stop for each in spans[:-1])]
    for each in spans:
        begin, end = len(text[: each.start].encode()), len(text[: each.stop].encode())
        assert sum(begin <= start < end for start, _ in offsets) <= max_tokens
    if len(offsets) <= max_tokens:
        assert spans == [Span(0, len(text))]


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("one two three four", ["one two ", "three ", "four"]),  # three is two tokens, as is four
        ("é漢🙂 é漢🙂 é漢🙂 é", ["é漢🙂 é漢🙂 é漢🙂 ", "é"]),
        ("abcdefghijklmnopqr", ["abcdefghi", "jklmnopqr"]),  # no word begins: between two tokens
        ("a bcdefghijklmno", ["a bcdefg", "hijklmno"]),  # the word begins too early
    ],
)
def test_a_chunk_ends_before_a_word_if_one_begins_late_enough(text: str, chunks: list[str]) -> None:
    """In the second half of a chunk of three tokens."""
    assert [text[each.start : each.stop] for each in spans_of(text, offsets_of(text), 3)] == chunks


def test_tokens_of_one_character_are_in_one_chunk() -> None:
    """Some tokenizers take a character apart: no chunk is empty, though one has more tokens than the model reads."""
    offsets = np.array([(0, 3)] * 5 + [(3, 4)], dtype=np.int64)
    assert spans_of("漢a", offsets, 2) == [Span(0, 2)]
    assert spans_of("", np.zeros((0, 2), dtype=np.int64), 2) == [Span(0, 0)]
