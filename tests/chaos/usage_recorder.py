"""A model function that records when it computes, so that a test can see which process used the device when."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpuworker.functions import VectorizedFunction

TICK_S = 0.005
MAX_TICK_GAP_S, MAX_BATCH_GAP_S = 0.1, 0.5
"""Maximum time without a tick in which the device counts as used: within a batch, and from one batch to the next."""


class UsageRecorder(VectorizedFunction):
    """Returns its inputs after the time of a batch, and records a tick every few milliseconds meanwhile.

    Args:
        folder: where each process writes its ticks, each into a separate file; with a GPU, in a folder of its number.
        batch_s: duration of a batch.
        load_s: time that the constructor takes.
    """

    def __init__(self, folder: str, batch_s: float = 0.03, load_s: float = 0.0) -> None:
        time.sleep(load_s)
        gpu = Path(folder) / os.environ.get("CUDA_VISIBLE_DEVICES", "")
        gpu.mkdir(exist_ok=True)
        self._file = (gpu / f"{os.getpid()}.ticks").open("a", buffering=1)
        self._batch_s = batch_s

    def transform(self, values: Sequence[Any]) -> Sequence[Any]:
        """Records ticks for the duration of a batch."""
        self._file.write("\n")
        ends = time.monotonic() + self._batch_s
        while (now := time.monotonic()) < ends:
            self._file.write(f"{now:.6f}\n")
            time.sleep(TICK_S)
        self._file.write(f"{time.monotonic():.6f}\n")
        return values


class UsageInterval(NamedTuple):
    """An uninterrupted time in which one process used the device (s, monotonic)."""

    process: str
    began: float
    ended: float


def usage_intervals(folder: Path, *, by_batch: bool) -> list[UsageInterval]:
    """Returns the intervals of all processes by start: one for each batch, or one for consecutive batches."""
    return sorted(
        (each for path in folder.glob("*.ticks") for each in _read_intervals(path, by_batch=by_batch)),
        key=lambda each: each.began,
    )


def overlap_s(folder: Path, *, by_batch: bool) -> float:
    """Returns the longest time in s for which two processes used the device at once.

    With `by_batch` processes take turns batch by batch; otherwise a process also uses the device between its batches.
    """
    intervals = usage_intervals(folder, by_batch=by_batch)
    shared = [
        min(one.ended, other.ended) - other.began
        for number, one in enumerate(intervals)
        for other in intervals[number + 1 :]
        if other.process != one.process and other.began < one.ended
    ]
    return max(shared, default=0.0)


def _read_intervals(path: Path, *, by_batch: bool) -> list[UsageInterval]:
    text = path.read_text()
    intervals: list[UsageInterval] = []
    max_gap_s = MAX_TICK_GAP_S if by_batch else MAX_BATCH_GAP_S
    for batch in text.split("\n\n") if by_batch else [text]:
        last = 0.0
        for tick in map(float, batch.split()):
            if tick - last > max_gap_s:  # the process was stopped meanwhile, or idle
                intervals.append(UsageInterval(path.stem, tick, tick))
            else:
                intervals[-1] = intervals[-1]._replace(ended=tick)
            last = tick
    return intervals
