"""Where a text that is longer than the model reads is cut into chunks. Pure.

A chunk ends before a word if one begins in the second half of what the model reads; else between two tokens. So the
tokens of a chunk are those of the same place in the whole text, for tokenizers that take words apart one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Span(NamedTuple):
    """A chunk of a text: the characters from `start` up to `stop`, which is not part of it."""

    start: int
    stop: int


def spans_of(text: str, offsets: Sequence[tuple[int, int]], max_tokens: int) -> list[Span]:
    """Returns the chunks of a text, which together have all its characters.

    Args:
        text: the whole text.
        offsets: for each of its tokens, without special ones, where it begins and ends: bytes of the text's UTF-8.
        max_tokens: of a chunk.
    """
    data, first, cuts = text.encode(), 0, [0]
    while len(offsets) - first > max_tokens:
        end = first + max_tokens
        words = (at for at in range(end, first + max_tokens // 2, -1) if _begins_word(data, offsets, at))
        first = next(words, end)
        cuts.append(offsets[first][0])
    cuts.append(len(data))
    spans, start = [], 0
    for begin, end in pairwise(cuts):
        stop = start + len(data[begin:end].decode())
        spans.append(Span(start, stop))
        start = stop
    return spans


def _begins_word(data: bytes, offsets: Sequence[tuple[int, int]], at: int) -> bool:
    start = offsets[at][0]
    return start > offsets[at - 1][1] or data[start : start + 1].isspace()
