"""Batches of few shapes: for anything that is made once for each shape, such as a CUDA graph. Pure."""

from __future__ import annotations

from collections.abc import Iterator

MIN_TOKENS = 16


def round_up(number: int, minimum: int = 1) -> int:
    """Returns the next power of two, or one and a half times a power of two: at most 1.5 times the number.

    The result is at least `minimum`.
    """
    power = max(minimum, 1 << (number - 1).bit_length())
    between = 3 * power // 4
    return between if number <= between and between >= minimum else power


def shape_of(texts: int, tokens: int, longest: int) -> tuple[int, int]:
    """Returns the shape to which a batch of `texts` texts, the longest of `tokens` tokens, is padded.

    No text of it becomes longer than the model's maximum, `longest`.
    """
    return round_up(texts), max(tokens, min(longest, round_up(tokens, MIN_TOKENS)))


def shapes(max_texts: int, max_tokens: int, longest: int) -> Iterator[tuple[int, int]]:
    """Yields the shapes of all batches within these limits.

    Args:
        max_texts: maximum texts of a batch.
        max_tokens: maximum tokens of a batch, with padding but without that of its shape.
        longest: maximum tokens of a text.
    """
    shortest: dict[int, int] = {}
    for tokens in range(1, longest + 1):
        shortest.setdefault(shape_of(1, tokens, longest)[1], tokens)
    for side, tokens in shortest.items():
        limit = min(max_texts, max(1, max_tokens // tokens))
        yield from ((texts, side) for texts in sorted({round_up(each) for each in range(1, limit + 1)}))
