"""How much a worker may claim. Pure.

It holds enough to sort by length and to keep its engine busy, and no more: what it holds, nobody else can run.
"""

from __future__ import annotations

from typing import NamedTuple

HORIZON_S = 1.0
"""At most this much of the engine's work is held."""


class Held(NamedTuple):
    """What a worker has claimed and not answered: of all lanes, or of the interactive one."""

    entries: int
    tokens: int


class Credit(NamedTuple):
    """What it may claim now."""

    entries: int
    tokens: int


def credit(held: Held, window: int, tokens_per_s: float, least_tokens: int) -> Credit | None:
    """Returns what may be claimed, or None when enough is held.

    Interactive entries have room beside all of bulk that is held, since they run before it; bulk has what all leave.

    `window` bounds the entries; `tokens_per_s` is the engine's measured rate (0 while unknown) and `least_tokens`
    what it may hold however slow it is: the batch that runs and the one that is ready.
    """
    tokens = max(least_tokens, int(tokens_per_s * HORIZON_S)) - held.tokens
    entries = window - held.entries
    if tokens <= 0 or entries <= 0:
        return None
    return Credit(entries, tokens)
