"""Where a text that is longer than the model reads is cut into chunks. Pure.

A chunk ends before a word if one begins in the second half of what the model reads; else between two tokens. So the
tokens of a chunk are those of the same place in the whole text, for tokenizers that take words apart one by one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from api.dialects.request import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Offsets = NDArray[np.int64]


def spans_of(text: str, offsets: Offsets, max_tokens: int) -> list[Span]:
    """Returns the chunks of a text, which together have all its characters.

    Args:
        text: the whole text.
        offsets: where each of its tokens begins and ends, without special ones: bytes of its UTF-8, shape (tokens, 2).
        max_tokens: of a chunk.
    """
    data, first, cuts = text.encode(), 0, [0]
    while len(offsets) - first > max_tokens:
        end = first + max_tokens
        words = (at for at in range(end, first + max_tokens // 2, -1) if _begins_word(data, offsets, at))
        first = next(words, end)
        cuts.append(int(offsets[first][0]))
    cuts.append(len(data))
    spans, start = [], 0
    for begin, end in pairwise(sorted(set(cuts))):  # tokens of one character begin at the same place
        stop = start + len(data[begin:end].decode())
        spans.append(Span(start, stop))
        start = stop
    return spans or [Span(0, 0)]


def _begins_word(data: bytes, offsets: Offsets, at: int) -> bool:
    start = int(offsets[at][0])
    return start > int(offsets[at - 1][1]) or data[start : start + 1].isspace()
