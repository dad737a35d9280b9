"""How large a batch that contains bulk may be while interactive inputs arrive. Pure.

An interactive input waits for the batch that runs, and then for its own batch. A device that runs full batches of bulk
is never idle, but both waits are then as long as a batch can be. So while interactive inputs arrive, a batch that
contains bulk takes at most `stretch` times as long as one of interactive inputs alone would, at their rate of arrival.
A batch of n tokens takes fixed + each · n. If λ tokens arrive in a second, and all that arrive during a batch make the
next one, that is fixed / (1 - each · λ) in the long run, and never less than for one input.

Batches of about one size reveal little about the time of another size, and noise may suggest that it would take no
longer. So a batch may be only a little larger than the largest recent one: the time of larger batches is measured
before they are much larger.
"""

from __future__ import annotations

import math

from gpuworker.policy.costs import Costs

RECENT_S = 3.0
"""Time constant of the rate of arrival, and how long after the last one interactive inputs still count."""

GROWTH, LARGEST_DECAY = 1.1, 0.98
"""The next batch may be this much larger than the largest recent one; and what each batch leaves of that one's size."""

WEIGHT = 0.1
"""Weight of the last batch in the average tokens of an input."""


class BulkBatchLimit:
    """The recent rate of interactive inputs, and the room that they leave for bulk in a batch.

    Args:
        stretch: how many times longer a batch may take if it contains bulk.
        runners: how many batches run at once; what arrives is spread over them.
    """

    def __init__(self, stretch: float, runners: int) -> None:
        self._stretch = stretch
        self._runners = runners
        self._recent_tokens = 0.0
        self._input_tokens = 0.0
        self._last_at: float | None = None
        self._largest = 0.0

    def record_start(self, inputs: int, tokens: int, bulk_tokens: int, now: float) -> None:
        """Counts a batch that begins: its interactive inputs and their tokens, and its tokens of bulk."""
        self._largest = max(float(tokens + bulk_tokens), LARGEST_DECAY * self._largest)
        if not inputs:
            return
        self._recent_tokens = self._recent_tokens * self._decay(now) + tokens
        self._input_tokens += (WEIGHT if self._input_tokens else 1.0) * (tokens / inputs - self._input_tokens)
        self._last_at = now

    def max_bulk_tokens(self, costs: Costs | None, now: float) -> int | None:
        """Returns the maximum tokens of a batch that contains bulk, padding included; None while there is no limit."""
        if costs is None or self._last_at is None or now - self._last_at > RECENT_S:
            return None
        return math.ceil(max(1.0, self._input_tokens, min(self._max_tokens(costs, now), GROWTH * self._largest)))

    def expected_inputs(self, seconds: float, now: float) -> float:
        """Returns how many interactive inputs arrive within `seconds`, at their recent rate."""
        return (
            self._recent_tokens * self._decay(now) / RECENT_S / self._input_tokens * seconds
            if self._input_tokens
            else 0.0
        )

    def _max_tokens(self, costs: Costs, now: float) -> float:
        """The maximum tokens of a batch, by the costs of batches alone."""
        load = costs.token_s * self._recent_tokens * self._decay(now) / RECENT_S / self._runners
        if load >= 1 or costs.token_s <= 0:
            return math.inf
        alone_s = max(costs.seconds(self._input_tokens), costs.fixed_s / (1 - load))
        return (self._stretch * alone_s - costs.fixed_s) / costs.token_s

    def _decay(self, now: float) -> float:
        """What is left now of the weight of the last batch."""
        return 0.0 if self._last_at is None else math.exp((self._last_at - now) / RECENT_S)
