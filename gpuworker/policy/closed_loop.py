"""Whether answers bring new inputs, and how soon. Pure.

A client that asks again when it has its answer comes back a certain time after the batch that answered it. So it is
counted how many of those answered come within a while of the batch's end, and how long that takes. Where inputs come
independently of answers, few of them do, or they take the whole while.
"""

from __future__ import annotations

FORGET = 0.1
"""Share of what is known that one more batch replaces."""


class Returns:
    """What came back after the last batches.

    Attributes:
        ended: when the last batch ended; None before the first.
        out: how many of those that it answered have not come back, if every input that came since is one of them.
        share: of those answered, how many come back in the while.
        delay_s: how long it takes until these have. It follows a longer time at once, and a shorter one slowly.
    """

    def __init__(self) -> None:
        self.ended: float | None = None
        self.out = 0
        self.share = 0.0
        self.delay_s = 0.0
        self._answered = 0
        self._back = 0
        self._last_s = 0.0

    def arrived(self, now: float, inputs: int, while_s: float) -> None:
        """Takes in that inputs have come, and how long the while is."""
        if self.ended is None or self.out == 0:
            return
        came = min(inputs, self.out)
        self.out -= came
        if now - self.ended <= while_s:
            self._back += came
            self._last_s = max(self._last_s, now - self.ended)  # threads may tell it out of turn

    def finished(self, now: float, answered: int) -> None:
        """Takes in that a batch has ended and answered inputs."""
        if self._answered:
            self.share += FORGET * (self._back / self._answered - self.share)
            self.delay_s = max(self._last_s, self.delay_s + FORGET * (self._last_s - self.delay_s))
        self.ended, self.out = now, answered
        self._answered, self._back, self._last_s = answered, 0, 0.0
