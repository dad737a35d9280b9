"""How soon answers bring new inputs. Pure.

A client that asks again when it has its answer comes back a certain time after the batch that answered it. This is the
risk (as survival analysis calls it) that an input which is still out comes back, by the time since the last batch
ended: how many came back in each stretch of time, for the time that they were out in it. Where inputs come
independently of answers, the risk is low and says nothing; where they come as echoes, it stands out.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise

EDGES_S = (0.0, *(0.0002 * 2 ** (k / 2) for k in range(27)))
"""Stretches of time: 0.2 ms, then each 1.4 times as far from the end of the batch, up to 1.6 s."""

FORGET = 0.1
"""Share of what is known that one more batch replaces."""

STAYS_OUT = 1.0
"""The belief that nothing comes back, as a number of inputs that stayed out."""

_WIDTHS_S = tuple(after - before for before, after in pairwise(EDGES_S))


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
        self._seen = 0.0
        self._came = [0.0 for _ in EDGES_S]
        self._out_s = [0.0 for _ in EDGES_S]

    def arrived(self, now: float, inputs: int) -> None:
        """Takes in that inputs have come."""
        if self.ended is None or self.out == 0:
            return
        now = max(now, self._seen)  # threads may come out of turn
        self._account(self.ended, now)
        came = min(inputs, self.out)
        self._came[bisect_right(EDGES_S, now - self.ended) - 1] += came
        self.out -= came

    def finished(self, now: float, answered: int) -> None:
        """Takes in that a batch has ended and answered inputs."""
        if self.ended is not None:
            now = max(now, self._seen)
            self._account(self.ended, now)
            self._came = [(1 - FORGET) * each for each in self._came]
            self._out_s = [(1 - FORGET) * each for each in self._out_s]
            self.risks = (0.0, *accumulate(map(_risk, self._came, self._out_s, _WIDTHS_S)))
        self.ended = self._seen = now
        self.answered = self.out = answered

    def _account(self, ended: float, now: float) -> None:
        """Adds the time that has passed to those that were out in it."""
        since_s, until_s = self._seen - ended, now - ended
        self._seen = now
        if self.out == 0:
            return
        at = bisect_right(EDGES_S, since_s) - 1
        for end_s in (*EDGES_S[at + 1 :], until_s):
            if end_s >= until_s:
                self._out_s[at] += self.out * (until_s - since_s)
                return
            self._out_s[at] += self.out * (end_s - since_s)
            since_s, at = end_s, at + 1


def _risk(came: float, out_s: float, width_s: float) -> float:
    """The risk over one stretch."""
    return width_s * came / (out_s + STAYS_OUT * width_s)
