"""The highest load with which a setting keeps the budget: which number of clients to try next. Pure.

More clients mean more answers a second, up to what the model can do, and a longer wait for each. So a setting is tried
from the middle: up while the budget is kept, down while it is broken. Two things end it early. Going up: when more
clients no longer bring more answers. Going down: when a setting has broken the budget with no more answers a second
than the best so far has within it, for with fewer clients it will not have more.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from redbatch.tune.measurement import MARGIN, Measurement, TrialResult, trial_result

FIRST_CLIENTS = 16
MAX_CLIENTS = 1_024
FLAT_LOADS = 2
"""So many loads in a row that bring nothing end the way up: one may have been bad luck."""

LoadSearch = Generator[int, Measurement, TrialResult]


def client_counts(most: int) -> list[int]:
    """Returns the numbers of clients that are tried, up to `most`: 1, 2, 3, 4, 6, 8, 12, 16, 24, ..."""
    numbers = {1, most}
    power = 2
    while power <= most:
        numbers |= {power, *([power * 3 // 2] if power * 3 // 2 <= most else [])}
        power *= 2
    return sorted(numbers)


def full_search(budget_ms: float, most: int = MAX_CLIENTS) -> LoadSearch:
    """Yields numbers of clients, takes what came of each, and returns the result: in leaps, for one never tried."""
    steps = client_counts(most)
    at = max(i for i, clients in enumerate(steps) if clients <= max(1, min(FIRST_CLIENTS, most)))
    points = yield from _walk(steps, at, 2, budget_ms, 0.0)
    # What the leaps have left out between the last that kept the budget and the first that broke it.
    for clients in _skipped_counts(steps, points, budget_ms):
        points = (*points, (yield clients))
        if not points[-1].within(budget_ms):
            break
    return trial_result(points, budget_ms)


def local_search(budget_ms: float, against: TrialResult, most: int = MAX_CLIENTS) -> LoadSearch:
    """Does the same for a setting that is compared with another, from the load that was best for that one."""
    steps = client_counts(most)
    start = (against.best or against.lowest).clients
    points = yield from _walk(steps, steps.index(start), 1, budget_ms, against.per_s)
    dropped = not any(point.within(budget_ms) for point in points) and points[-1].clients > steps[0]
    return trial_result(points, budget_ms, dropped=dropped)


def _walk(
    steps: Sequence[int], at: int, leap: int, budget_ms: float, to_beat: float
) -> Generator[int, Measurement, tuple[Measurement, ...]]:
    """Goes up from rung `at` until the budget breaks, or down until it is kept."""
    points: tuple[Measurement, ...] = ((yield steps[at]),)
    if points[0].within(budget_ms):
        while at < len(steps) - 1 and not _is_flat(points):
            at = min(at + leap, len(steps) - 1)
            points = (*points, (yield steps[at]))
            if not points[-1].within(budget_ms):
                break
        return points
    while at > 0 and not points[-1].within(budget_ms) and not _is_hopeless(points[-1], to_beat):
        at = max(at - leap, 0)
        points = (*points, (yield steps[at]))
    return points


def _is_flat(points: Sequence[Measurement]) -> bool:
    """Whether the last loads brought no more answers than one before them."""
    if len(points) <= FLAT_LOADS:
        return False
    before = max(point.per_s for point in points[:-FLAT_LOADS])
    return all(point.per_s <= before * (1 + MARGIN) for point in points[-FLAT_LOADS:])


def _is_hopeless(point: Measurement, to_beat: float) -> bool:
    """Whether fewer clients cannot win either. Where requests failed, their number says nothing about that."""
    return point.errors == 0 and to_beat > 0 and point.per_s <= to_beat * (1 + MARGIN)


def _skipped_counts(steps: Sequence[int], points: Sequence[Measurement], budget_ms: float) -> list[int]:
    kept = max((point.clients for point in points if point.within(budget_ms)), default=0)
    broke = min((point.clients for point in points if not point.within(budget_ms)), default=0)
    return [clients for clients in steps if kept < clients < broke] if kept else []
