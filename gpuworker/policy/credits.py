"""How much a worker may claim. Pure.

It holds enough to sort by length, to fill its batches and to keep its engine busy, and no more: no other worker can run
what it holds.
"""

from __future__ import annotations

from typing import NamedTuple

HORIZON_S = 1.0
"""A worker holds at most this much of its engine's work, or the batches below if these are more. Of a long entry only a
part counts: see HeldLoad."""

MAX_HELD_S = 10.0
LONG_FACTOR = 2
"""With all tokens of long entries it holds at most MAX_HELD_S of work, or LONG_FACTOR times the batches below, where
another worker could run more. With less, short entries would wait behind long ones in the lane: at a load of 70 % the
p99 of short texts (bench.simulation.short_long) on four workers is 780 ms with 4 s, and 90 ms with 10 s or no bound.
"""

MIN_WINDOW = 256
FULL_BATCHES = 4
"""Full batches that a worker has room for: one runs, one is claimed ahead, and as many wait, because a batch leaves as
much waiting as it takes (see policy.limits)."""


class HeldLoad(NamedTuple):
    """What a worker has claimed and not answered: of all lanes, or of the interactive one.

    Of an interactive entry at most the tokens that make it long are in `counted_tokens`. The lane is read in order: if
    a few long entries filled the load, the short ones behind them, which go first, could not be claimed.
    """

    entries: int
    tokens: int
    inputs: int
    counted_tokens: int


class Credit(NamedTuple):
    """What a worker may claim now."""

    entries: int
    tokens: int


def default_claim_window(max_batch_size: int) -> int:
    """Returns the maximum entries that a worker holds: with one input each, they fill FULL_BATCHES batches."""
    return max(MIN_WINDOW, FULL_BATCHES * max_batch_size)


def min_held_tokens(held: HeldLoad, batch_tokens: int, max_batch_size: int, *, has_tokens: bool) -> int:
    """Returns the estimated tokens that a worker may hold however slow it is.

    Those of two full batches: the one that runs and the one that is ready. A model without tokens counts inputs
    instead, whatever tokens the gateway estimated for them; so these are the tokens of FULL_BATCHES full batches, each
    input with the mean of those held.

    Args:
        held: of this lane and of those before it.
        batch_tokens: maximum tokens of a batch.
        max_batch_size: maximum inputs of a batch.
        has_tokens: whether the model reads tokens.
    """
    if has_tokens or not held.inputs:
        return 2 * batch_tokens
    return max(2 * batch_tokens, FULL_BATCHES * max_batch_size * held.tokens // held.inputs)


def compute_credit(
    held: HeldLoad, window: int, tokens_per_s: float, min_tokens: int, *, is_alone: bool
) -> Credit | None:
    """Returns what may be claimed, or None if enough is held.

    For interactive entries, bulk that is held does not count, since they run before it. For bulk, all entries count.

    Args:
        held: of this lane and of those before it.
        window: maximum entries.
        tokens_per_s: measured rate of the engine; 0 while unknown.
        min_tokens: see min_held_tokens.
        is_alone: whether no other worker serves the queue.
    """
    tokens = max(min_tokens, int(tokens_per_s * HORIZON_S)) - held.counted_tokens
    if not is_alone:
        tokens = min(tokens, max(LONG_FACTOR * min_tokens, int(tokens_per_s * MAX_HELD_S)) - held.tokens)
    entries = window - held.entries
    if tokens <= 0 or entries <= 0:
        return None
    return Credit(entries, tokens)
