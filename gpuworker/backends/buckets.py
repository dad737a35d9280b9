"""Batches of few shapes: for what is made anew for each, as a CUDA graph is. Pure."""

from __future__ import annotations

from collections.abc import Iterator

MIN_TOKENS = 16


def rounded(number: int, least: int = 1) -> int:
    """Returns the next power of two, or half as much again as one: at most half more than the number."""
    power = max(least, 1 << (number - 1).bit_length())
    between = 3 * power // 4
    return between if number <= between and between >= least else power


def shape_of(texts: int, tokens: int, longest: int) -> tuple[int, int]:
    """Returns the shape that a batch of so many texts, the longest of so many tokens, is padded to.

    No text of it becomes longer than the longest that the model takes.
    """
    return rounded(texts), max(tokens, min(longest, rounded(tokens, MIN_TOKENS)))


def shapes(max_texts: int, max_tokens: int, longest: int) -> Iterator[tuple[int, int]]:
    """Yields the shapes of all batches within these bounds.

    Args:
        max_texts: most texts in a batch.
        max_tokens: most tokens in a batch, with padding but without that of its shape.
        longest: most tokens of a text.
    """
    shortest: dict[int, int] = {}
    for tokens in range(1, longest + 1):
        shortest.setdefault(shape_of(1, tokens, longest)[1], tokens)
    for side, tokens in shortest.items():
        most = min(max_texts, max(1, max_tokens // tokens))
        yield from ((texts, side) for texts in sorted({rounded(each) for each in range(1, most + 1)}))
