"""The limits of a batch, when a batch is full, and how many tokens one runner may take. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuworker.policy.batch_wait import WaitForecast
from gpuworker.policy.costs import Costs

OVERHEAD_TOKENS = 32.0
"""MiniLM on one core: 5 ms for any batch and 0.155 ms for each token. Padded batches soon replace it by their own."""


class Limits(NamedTuple):
    """Limits of a batch.

    Attributes:
        max_size: maximum inputs in a batch.
        max_tokens: maximum tokens in a batch, padding included; a `packed` batch has no padding.
        wait_s: longest wait, from the first input of a batch. If None, the `forecast` decides; None without a forecast
            is no wait.
        age_bound_s: an input that waited this long is in the next batch.
        reserve_s: expected run time of a batch. A wait ends at least this long before the oldest deadline.
        overhead_tokens: the fixed cost of a batch, independent of its content, as the number of tokens that take as
            long.
        packed: whether batches run without padding.
        costs: the time of batches, once it is known.
        forecast: which inputs are expected, and when.
        bulk_share: see policy.fair_share.
        bulk_age_bound_s: see policy.fair_share.
        bulk_stretch: see policy.bulk_limit.
        min_long_tokens: an entry with at least this many tokens is long: see policy.short_first. None: no entry is.
        preferred_sizes: sizes of a batch that are preferred, in ascending order. `max_size` is then the last of them.
        max_bulk_tokens: follows from `bulk_stretch` at the moment: the `max_tokens` of a batch that contains bulk.
    """

    max_size: int
    max_tokens: int
    wait_s: float | None = 0.0
    age_bound_s: float = 0.2
    reserve_s: float = 0.0
    overhead_tokens: float = OVERHEAD_TOKENS
    packed: bool = False
    costs: Costs | None = None
    forecast: WaitForecast | None = None
    bulk_share: float = 0.1
    bulk_age_bound_s: float = 5.0
    bulk_stretch: float = 1.1
    min_long_tokens: int | None = None
    preferred_sizes: tuple[int, ...] = ()
    max_bulk_tokens: int | None = None

    def for_lane(self, *, bulk: bool) -> Limits:
        """Returns the limits up to which a batch accepts inputs of bulk, or interactive ones."""
        if not bulk or self.max_bulk_tokens is None:
            return self
        return self._replace(max_tokens=min(self.max_tokens, self.max_bulk_tokens))


def parse_sizes(text: str) -> tuple[int, ...]:
    """Returns the preferred sizes of a setting, in ascending order. Raises ValueError: it is no list of sizes."""
    sizes = sorted({int(each) for each in text.split(",")}) if text.strip() else []
    if sizes and sizes[0] < 1:
        raise ValueError(f"{sizes[0]} is no size of a batch")
    return tuple(sizes)


def preferred_size(size: int, limits: Limits) -> int:
    """Returns the largest preferred size that a batch of this size reaches; 0 if there is none."""
    return max((each for each in limits.preferred_sizes if each <= size), default=0)


def is_full(lengths: Sequence[int], limits: Limits) -> bool:
    """Returns whether inputs of these lengths and one more, as long as the longest, would exceed the limits."""
    longest = max(lengths)
    cost = sum(lengths) + longest if limits.packed else longest * (len(lengths) + 1)
    return len(lengths) >= limits.max_size or cost > limits.max_tokens
