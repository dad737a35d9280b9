"""Finds the highest load at which a candidate keeps the budget: which number of clients to try next. Pure.

More clients mean more answers per second, up to the capacity of the model, and a longer wait for each. So a search
starts in the middle: it goes up while the budget is kept, and down while it is exceeded. Two rules end it early. Going
up: more clients no longer bring more answers. Going down: a candidate has exceeded the budget with no more answers per
second than the baseline has within it; with fewer clients it will not have more.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from redbatch.tune.measurement import MARGIN, Measurement, TrialResult, trial_result

FIRST_CLIENTS = 16
MAX_CLIENTS = 1_024
FLAT_LOADS = 2
"""This many loads in a row without a gain end the way up: a single one may be bad luck."""

LoadSearch = Generator[int, Measurement, TrialResult]


def client_counts(max_clients: int) -> list[int]:
    """Returns the numbers of clients to try, up to `max_clients`: 1, 2, 3, 4, 6, 8, 12, 16, 24, ..."""
    numbers = {1, max_clients}
    power = 2
    while power <= max_clients:
        numbers |= {power, *([power * 3 // 2] if power * 3 // 2 <= max_clients else [])}
        power *= 2
    return sorted(numbers)


def full_search(budget_ms: float, max_clients: int = MAX_CLIENTS) -> LoadSearch:
    """Searches without a baseline, two counts at a time.

    Yields numbers of clients, receives the measurements, and returns the result.
    """
    counts = client_counts(max_clients)
    index = max(i for i, clients in enumerate(counts) if clients <= max(1, min(FIRST_CLIENTS, max_clients)))
    measurements = yield from _walk(counts, index, 2, budget_ms, 0.0)
    # Then the skipped counts between the last that kept the budget and the first that exceeded it.
    for clients in _skipped_counts(counts, measurements, budget_ms):
        measurements = (*measurements, (yield clients))
        if not measurements[-1].within(budget_ms):
            break
    return trial_result(measurements, budget_ms)


def local_search(budget_ms: float, baseline: TrialResult, max_clients: int = MAX_CLIENTS) -> LoadSearch:
    """Does the same one count at a time for a candidate with a baseline, from the best load of the baseline."""
    counts = client_counts(max_clients)
    start = (baseline.best or baseline.lowest).clients
    measurements = yield from _walk(counts, counts.index(start), 1, budget_ms, baseline.per_s)
    dropped = (
        not any(measurement.within(budget_ms) for measurement in measurements) and measurements[-1].clients > counts[0]
    )
    return trial_result(measurements, budget_ms, dropped=dropped)


def _walk(
    counts: Sequence[int], index: int, stride: int, budget_ms: float, baseline_per_s: float
) -> Generator[int, Measurement, tuple[Measurement, ...]]:
    """Goes up from `counts[index]` until the budget is exceeded, or down until it is kept."""
    measurements: tuple[Measurement, ...] = ((yield counts[index]),)
    if measurements[0].within(budget_ms):
        while index < len(counts) - 1 and not _is_flat(measurements):
            index = min(index + stride, len(counts) - 1)
            measurements = (*measurements, (yield counts[index]))
            if not measurements[-1].within(budget_ms):
                break
        return measurements
    while index > 0 and not measurements[-1].within(budget_ms) and not _is_hopeless(measurements[-1], baseline_per_s):
        index = max(index - stride, 0)
        measurements = (*measurements, (yield counts[index]))
    return measurements


def _is_flat(measurements: Sequence[Measurement]) -> bool:
    """Whether the last loads brought no more answers than one of the loads before them."""
    if len(measurements) <= FLAT_LOADS:
        return False
    before = max(measurement.per_s for measurement in measurements[:-FLAT_LOADS])
    return all(measurement.per_s <= before * (1 + MARGIN) for measurement in measurements[-FLAT_LOADS:])


def _is_hopeless(measurement: Measurement, baseline_per_s: float) -> bool:
    """Whether fewer clients cannot win either. If requests failed, the number of answers says nothing about that."""
    return measurement.errors == 0 and baseline_per_s > 0 and measurement.per_s <= baseline_per_s * (1 + MARGIN)


def _skipped_counts(counts: Sequence[int], measurements: Sequence[Measurement], budget_ms: float) -> list[int]:
    max_kept = max((measurement.clients for measurement in measurements if measurement.within(budget_ms)), default=0)
    min_broken = min(
        (measurement.clients for measurement in measurements if not measurement.within(budget_ms)), default=0
    )
    return [clients for clients in counts if max_kept < clients < min_broken] if max_kept else []
