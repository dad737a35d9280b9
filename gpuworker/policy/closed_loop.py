"""Whether answers bring new inputs, and how soon. Pure.

A client that sends its next request when it has its answer comes back a certain time after the batch that answered it.
So this module counts how many of the answered inputs come back within a window after the batch's end, and how long that
takes. If inputs arrive independently of answers, few of them come within the window, or they take all of it.
"""

from __future__ import annotations

FORGET = 0.1
"""Fraction of the estimate that one more batch replaces."""


class ReturnEstimator:
    """What came back after the last batches.

    Attributes:
        ended_at: when the last batch ended; None before the first.
        outstanding: how many of the inputs that it answered have not come back, if every input since is one of them.
        share: fraction of the answered inputs that come back within the window.
        delay_s: how long it takes until these have come. It follows a longer time at once, and a shorter one slowly.
    """

    def __init__(self) -> None:
        self.ended_at: float | None = None
        self.outstanding = 0
        self.share = 0.0
        self.delay_s = 0.0
        self._num_answered = 0
        self._num_returned = 0
        self._last_return_s = 0.0

    def record_arrivals(self, now: float, inputs: int, window_s: float) -> None:
        """Counts inputs that have arrived; `window_s` is the length of the window."""
        if self.ended_at is None or self.outstanding == 0:
            return
        returned = min(inputs, self.outstanding)
        self.outstanding -= returned
        if now - self.ended_at <= window_s:
            self._num_returned += returned
            self._last_return_s = max(self._last_return_s, now - self.ended_at)  # threads may report out of order

    def record_batch(self, now: float, answered: int) -> None:
        """Learns from the batch before, and starts counting for one that ended `now` and answered inputs."""
        if self._num_answered:
            self.share += FORGET * (self._num_returned / self._num_answered - self.share)
            self.delay_s = max(self._last_return_s, self.delay_s + FORGET * (self._last_return_s - self.delay_s))
        self.ended_at, self.outstanding = now, answered
        self._num_answered, self._num_returned, self._last_return_s = answered, 0, 0.0
