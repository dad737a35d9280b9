"""The rate of an engine: what it does while it has more to do than one batch takes. Pure."""

from __future__ import annotations

from typing import NamedTuple

DECAY = 0.9
"""Weight of the past in the rate, batch by batch."""

VALID_S = 30.0
"""How long a rate holds after the last batch that shows it.

A rate that is too low, such as that of a machine that was busy with something else, makes gateways refuse what would
show a higher one. So it must not hold for ever. Under overload there is such a batch all the time.
"""


class BatchLoad(NamedTuple):
    """A batch that ran.

    `cost` is that of its inputs (estimated tokens), `ended_at` when it ended (monotonic clock, s), `run_s` how long it
    ran, and `gap_s` how long the runner was idle before it while there was work. `is_saturated`: it was full, or it was
    large and more waited.
    """

    cost: float
    ended_at: float
    run_s: float
    gap_s: float
    is_saturated: bool


class TokenRate:
    """Measures the rate while batches are saturated: otherwise an engine does what is requested, and could do more.

    Batches that ran side by side count for the time that they took together.

    Args:
        counts_gaps: whether the time between two saturated batches counts: so if no batch waits for more inputs. On a
            busy machine it is long.
    """

    def __init__(self, *, counts_gaps: bool) -> None:
        self._counts_gaps = counts_gaps
        self._tokens = self._busy_s = self._last_ended = 0.0
        self._was_saturated = False
        self._measured_at: float | None = None

    def record(self, batch: BatchLoad) -> None:
        """Learns from a batch."""
        began = batch.ended_at - batch.run_s
        if batch.is_saturated and self._was_saturated and self._counts_gaps:
            began -= batch.gap_s
        busy_s = max(0.0, batch.ended_at - max(self._last_ended, began))
        self._last_ended = max(self._last_ended, batch.ended_at)
        self._was_saturated = batch.is_saturated
        if not batch.is_saturated:
            return
        if not self.at(batch.ended_at):
            self._tokens = self._busy_s = 0.0
        self._tokens = DECAY * self._tokens + batch.cost
        self._busy_s = DECAY * self._busy_s + busy_s
        self._measured_at = batch.ended_at

    def at(self, now: float) -> float:
        """Returns the rate at a time (monotonic clock, s), in estimated tokens per second; 0: it is not known."""
        if self._measured_at is None or now - self._measured_at > VALID_S:
            return 0.0
        return self._tokens / max(self._busy_s, 1e-9)
