"""How much of jobs may be in the lanes."""

from __future__ import annotations

from typing import NamedTuple

MAX_ENTRIES = 1_024
MIN_TOKENS = 8_192
WINDOW_S = 2.0
"""The lanes hold about the work of this time from jobs: a worker claims at most one second of work."""

MAX_BYTES = 64 * 2**20
"""Redis holds these a second time, beside the inputs of the jobs. More of them would only wait there: workers feed the
lanes whenever they have answered."""


class FeedWindow(NamedTuple):
    """Maximum content of the lanes from all jobs together."""

    entries: int
    tokens: int
    bytes: int = MAX_BYTES


def feed_window(tokens_per_s: float, batch_tokens: int = 0, workers: int = 1) -> FeedWindow:
    """Returns the maximum content of the lanes from jobs. Pure.

    Args:
        tokens_per_s: the fleet's throughput; 0 while unknown.
        batch_tokens: the token limit of a batch: a few batches have to wait, or the fleet's speed could not be
            measured.
        workers: number of workers of the fleet.
    """
    return FeedWindow(MAX_ENTRIES, max(MIN_TOKENS, 4 * batch_tokens * workers, int(WINDOW_S * tokens_per_s)))


MIN_WINDOW = feed_window(0.0)
"""A new job feeds up to this window into the lanes itself; workers feed the rest."""
