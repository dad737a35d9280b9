"""How large a batch may be with bulk in it, while interactive inputs come. Pure.

An interactive input waits for the batch that runs, and then for its own. A device that runs full batches of bulk is
never idle, but makes each of the two as long as a batch may be. So while interactive inputs come, a batch with bulk in
it takes at most `stretch` times as long as one of interactive inputs alone would, at the rate at which they come. What
a batch takes that holds n tokens is fixed + each · n; where λ tokens come in a second and all that came in a batch make
the next one, that is fixed / (1 - each · λ) in the long run, and never less than for one input.

Batches that are all of about one size say little of what another size would take, and noise may say that it would take
no longer. So a batch may be little larger than the largest lately, and what larger ones take is seen before they are.
"""

from __future__ import annotations

import math

from gpuworker.policy.costs import Costs

LATELY_S = 3.0
"""Time constant of the average of what comes, and how long after the last one interactive inputs still count."""

GROWTH, FADES = 1.1, 0.98
"""How much larger than the largest lately the next batch may be, and what each batch leaves of how large that was."""

WEIGHT = 0.1
"""Of the last batch, in how many tokens an input has."""


class Guests:
    """The interactive inputs that come lately, and what room they leave for bulk beside them.

    Args:
        stretch: how many times longer a batch may take with bulk in it.
        runners: how many batches run at once, among which what comes is spread.
    """

    def __init__(self, stretch: float, runners: int) -> None:
        self._stretch = stretch
        self._runners = runners
        self._recent = 0.0
        self._each = 0.0
        self._at: float | None = None
        self._largest = 0.0

    def began(self, inputs: int, tokens: int, beside: int, now: float) -> None:
        """Takes in that a batch begins: how many interactive inputs it has, of how many tokens, and tokens of bulk."""
        self._largest = max(float(tokens + beside), FADES * self._largest)
        if not inputs:
            return
        self._recent = self._recent * self._faded(now) + tokens
        self._each += (WEIGHT if self._each else 1.0) * (tokens / inputs - self._each)
        self._at = now

    def bulk_tokens(self, costs: Costs | None, now: float) -> int | None:
        """Returns the most tokens of a batch with bulk in it, padding included; None while there is no such bound."""
        if costs is None or self._at is None or now - self._at > LATELY_S:
            return None
        return math.ceil(max(1.0, self._each, min(self._expected(costs, now), GROWTH * self._largest)))

    def coming(self, seconds: float, now: float) -> float:
        """Returns how many interactive inputs come in so much time, at the rate at which they have come lately."""
        return self._recent * self._faded(now) / LATELY_S / self._each * seconds if self._each else 0.0

    def _expected(self, costs: Costs, now: float) -> float:
        """How many tokens may be in a batch by what batches cost."""
        load = costs.token_s * self._recent * self._faded(now) / LATELY_S / self._runners
        if load >= 1 or costs.token_s <= 0:
            return math.inf
        alone_s = max(costs.seconds(self._each), costs.fixed_s / (1 - load))
        return (self._stretch * alone_s - costs.fixed_s) / costs.token_s

    def _faded(self, now: float) -> float:
        """What is left by now of the weight of the last batch."""
        return 0.0 if self._at is None else math.exp((self._at - now) / LATELY_S)
