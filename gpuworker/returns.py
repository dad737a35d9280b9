"""How soon answers bring new inputs. Pure.

A client that asks again when it has its answer comes back a certain time after the batch that answered it. This is a
life table of that: for each stretch of time since the last batch ended, how many of the inputs that were still out when
it began came back in it. Where inputs come independently of answers, they come at any time, and few of those out are
expected soon; where they come as echoes, it stands out.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate

EDGES_S = (0.0, *(0.0002 * 2 ** (k / 2) for k in range(27)))
"""Stretches of time: 0.2 ms, then each 1.4 times as far from the end of the batch, up to 1.6 s."""

FORGET = 0.1
"""Share of what is known that one more batch replaces."""

STAYS_OUT = 1.0
"""The belief that nothing comes back, as a number of inputs that stayed out."""


class Returns:
    """What came back after each of the last batches.

    Attributes:
        ended: when the last batch ended; None before the first.
        answered: how many inputs it answered.
        out: how many of these have not come back, if every input that came since is one of them.
        risks: the risk up to each of EDGES_S, added up: of those out, exp(-risk) stay out so long.
    """

    def __init__(self) -> None:
        self.ended: float | None = None
        self.answered = 0
        self.out = 0
        self.risks = tuple(0.0 for _ in EDGES_S)
        self._stretch = 0
        self._came = [0.0 for _ in EDGES_S]
        self._were_out = [0.0 for _ in EDGES_S]

    def arrived(self, now: float, inputs: int) -> None:
        """Takes in that inputs have come."""
        if self.ended is None or self.out == 0:
            return
        self._pass(now - self.ended)
        came = min(inputs, self.out)
        self._came[self._stretch] += came
        self.out -= came

    def finished(self, now: float, answered: int) -> None:
        """Takes in that a batch has ended and answered inputs."""
        if self.ended is not None:
            self._pass(now - self.ended)
            self._were_out[self._stretch] -= self.out / 2  # they were seen for a part of this stretch
            self._came = [(1 - FORGET) * each for each in self._came]
            self._were_out = [(1 - FORGET) * each for each in self._were_out]
            self.risks = (0.0, *accumulate(map(_risk, self._came[:-1], self._were_out[:-1])))
        self.ended, self._stretch = now, 0
        self.answered = self.out = answered
        self._were_out[0] += answered

    def _pass(self, since_s: float) -> None:
        """Those out see the stretches of time up to now begin. Threads may come out of turn: time only goes on."""
        at = bisect_right(EDGES_S, since_s) - 1
        for k in range(self._stretch + 1, at + 1):
            self._were_out[k] += self.out
        self._stretch = max(self._stretch, at)


def _risk(came: float, were_out: float) -> float:
    """The risk over one stretch."""
    return -math.log(1 - came / (were_out + STAYS_OUT))
