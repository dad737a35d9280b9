"""Which entries are long: workers run short ones before them, and gateways admit short ones by that. Pure."""

from __future__ import annotations

LONG_PARTS = 2
"""An entry is long if it fills a batch by at least one part of this many."""


def min_long_tokens(max_batch_tokens: int) -> int:
    """Returns the minimum tokens of a long entry, where a batch has at most `max_batch_tokens`."""
    return max(1, max_batch_tokens // LONG_PARTS)


def is_long(tokens: int, inputs: int, min_tokens: int, max_batch_size: int) -> bool:
    """Returns whether an entry is long: it has at least `min_tokens`, or half of the inputs of a batch."""
    return tokens >= min_tokens or LONG_PARTS * inputs >= max_batch_size
