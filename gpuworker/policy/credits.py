"""How much a worker may claim. Pure.

It holds enough to sort by length and to keep its engine busy, and no more: no other worker can run what it holds.
"""

from __future__ import annotations

from typing import NamedTuple

HORIZON_S = 1.0
"""A worker holds at most this much of its engine's work."""


class HeldLoad(NamedTuple):
    """What a worker has claimed and not answered: of all lanes, or of the interactive one."""

    entries: int
    tokens: int


class Credit(NamedTuple):
    """What a worker may claim now."""

    entries: int
    tokens: int


def compute_credit(held: HeldLoad, window: int, tokens_per_s: float, min_tokens: int) -> Credit | None:
    """Returns what may be claimed, or None if enough is held.

    For interactive entries, bulk that is held does not count, since they run before it. For bulk, all entries count.

    Args:
        held: of this lane and of those before it.
        window: maximum entries.
        tokens_per_s: measured rate of the engine; 0 while unknown.
        min_tokens: what a worker may hold however slow it is: the batch that runs and the one that is ready.
    """
    tokens = max(min_tokens, int(tokens_per_s * HORIZON_S)) - held.tokens
    entries = window - held.entries
    if tokens <= 0 or entries <= 0:
        return None
    return Credit(entries, tokens)
