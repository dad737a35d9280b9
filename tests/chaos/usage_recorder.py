"""A function that writes down when it computes, so that a test can see who used the device when."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpuworker.functions import VectorizedFunction

TICK_S = 0.005
TORN_S, BREAK_S = 0.1, 0.5
"""A longer time without a tick is not one in which the device was used: within a batch, and from one to the next."""


class Ticking(VectorizedFunction):
    """Gives back what it is given, and takes some time for a batch, of which it notes every few milliseconds.

    Args:
        folder: where each process notes its ticks, in a file of its own.
        batch_s: how long a batch takes.
        load_s: how long it takes to be made.
    """

    def __init__(self, folder: str, batch_s: float = 0.03, load_s: float = 0.0) -> None:
        time.sleep(load_s)
        self._file = (Path(folder) / f"{os.getpid()}.ticks").open("a", buffering=1)
        self._batch_s = batch_s

    def transform(self, values: Sequence[Any]) -> Sequence[Any]:
        """Ticks for the time of a batch."""
        self._file.write("\n")
        ends = time.monotonic() + self._batch_s
        while (now := time.monotonic()) < ends:
            self._file.write(f"{now:.6f}\n")
            time.sleep(TICK_S)
        self._file.write(f"{time.monotonic():.6f}\n")
        return values


class Stretch(NamedTuple):
    """Time without a break in which a process used the device (monotonic clock)."""

    process: str
    began: float
    ended: float


def stretches(folder: Path, *, by_batch: bool) -> list[Stretch]:
    """Returns who used the device when, by time: batch by batch, or as one from batch to batch."""
    return sorted(
        (each for path in folder.glob("*.ticks") for each in _of(path, by_batch=by_batch)), key=lambda each: each.began
    )


def overlap_s(folder: Path, *, by_batch: bool) -> float:
    """Returns the longest time for which two processes used the device side by side.

    `by_batch` says that they take turns batch by batch; otherwise a process that computes again and again uses it in
    between as well.
    """
    used = stretches(folder, by_batch=by_batch)
    shared = [
        min(one.ended, other.ended) - other.began
        for number, one in enumerate(used)
        for other in used[number + 1 :]
        if other.process != one.process and other.began < one.ended
    ]
    return max(shared, default=0.0)


def _of(path: Path, *, by_batch: bool) -> list[Stretch]:
    text = path.read_text()
    found: list[Stretch] = []
    for batch in text.split("\n\n") if by_batch else [text]:
        last = 0.0
        for at in map(float, batch.split()):
            if at - last > (TORN_S if by_batch else BREAK_S):  # it was stopped meanwhile, or had nothing to do
                found.append(Stretch(path.stem, at, at))
            else:
                found[-1] = found[-1]._replace(ended=at)
            last = at
    return found
