"""What the queues of a gateway did in the last minutes, as samples in a ring. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shared.activity import ActivitySummary

SAMPLE_S = 2.0
KEPT_S = 300.0
MAX_SAMPLES = int(KEPT_S / SAMPLE_S) + 1
RECENT_S = 60.0
"""The last part of the history, for which errors are also summed."""

QUEUE_COLUMNS = ("requests_per_s", "p50_ms", "p99_ms", "failed")


class QueueSample(NamedTuple):
    """What the workers of a queue did in the seconds before a sample: see `ActivitySummary`; `failed` are entries."""

    requests_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    failed: int


UNKNOWN = QueueSample(*[None] * len(QUEUE_COLUMNS))  # type: ignore[arg-type]  # no number is made up
"""Of a queue that was not served, or whose Redis did not answer."""


class HistorySample(NamedTuple):
    """All queues at a time (monotonic, s), and the errors that the gateway has answered since the sample before."""

    at_s: float
    queues: Mapping[str, QueueSample]
    errors: Mapping[str, int]


class QueueHistory:
    """The samples of the last KEPT_S, at most MAX_SAMPLES."""

    def __init__(self) -> None:
        self._samples: deque[HistorySample] = deque(maxlen=MAX_SAMPLES)
        self._error_totals: Mapping[str, int] = {}

    def add(self, at_s: float, queues: Mapping[str, ActivitySummary | None], error_totals: Mapping[str, int]) -> None:
        """Adds a sample.

        Args:
            at_s: the time, monotonic, s.
            queues: what the workers of each queue did; None if no Redis of it answers.
            error_totals: errors that the gateway has answered since its start, by code.
        """
        before, self._error_totals = self._error_totals, error_totals
        new = {code: total - before.get(code, 0) for code, total in error_totals.items()}
        samples = {name: _sample_of(each) for name, each in queues.items() if each is not None}
        self._samples.append(HistorySample(at_s, samples, {code: count for code, count in new.items() if count > 0}))
        while self._samples[0].at_s < at_s - KEPT_S:
            self._samples.popleft()

    def as_dict(self, queues: Sequence[str]) -> dict[str, Any]:
        """Returns the samples of these queues, and errors by code, as columns. Times are relative to the last sample.

        A number is null where it is not known: a queue was not served then, its Redis did not answer, or there was no
        latency.
        """
        samples = list(self._samples)
        end_s = samples[-1].at_s if samples else 0.0
        recent = [each for each in samples if each.at_s > end_s - RECENT_S]
        codes = sorted({code for each in samples for code in each.errors})
        return {
            "kept_s": KEPT_S,
            "times_s": [round(each.at_s - end_s, 2) for each in samples],
            "queues": [{"queue": name, **_columns(samples, name)} for name in queues],
            "errors": [
                {
                    "code": code,
                    "last_minute": sum(each.errors.get(code, 0) for each in recent),
                    "counts": [each.errors.get(code, 0) for each in samples],
                }
                for code in codes
            ],
        }


def _sample_of(activity: ActivitySummary) -> QueueSample:
    return QueueSample(
        round(activity.requests_per_s, 3),
        None if activity.p50_ms is None else round(activity.p50_ms, 3),
        None if activity.p99_ms is None else round(activity.p99_ms, 3),
        activity.errors,
    )


def _columns(samples: Sequence[HistorySample], queue: str) -> dict[str, list[float | None]]:
    rows = [each.queues.get(queue, UNKNOWN) for each in samples]
    return {name: [getattr(each, name) for each in rows] for name in QUEUE_COLUMNS}
