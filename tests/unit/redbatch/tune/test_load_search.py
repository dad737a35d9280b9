"""The order in which loads are tried."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from redbatch.tune.load_search import LoadSearch, client_counts, full_search, local_search
from redbatch.tune.measurement import MARGIN, Measurement, TrialResult
from tests.unit.redbatch.tune.measurements import batching_server, measurement, result

BUDGETS_MS = st.floats(1, 2_000)
SIZES = st.sampled_from([1, 4, 8, 16, 64, 256])


def search(generator: LoadSearch, serve: Callable[[int], Measurement]) -> TrialResult:
    """Runs the search to its end."""
    clients = next(generator)
    while True:
        try:
            clients = generator.send(serve(clients))
        except StopIteration as end:
            outcome: TrialResult = end.value
            return outcome


def tried_clients(outcome: TrialResult) -> list[int]:
    """Returns the numbers of clients in the order in which they were tried."""
    return [each.clients for each in outcome.measurements]


def test_client_counts_grow_by_a_third_or_a_half() -> None:
    """Counts grow by a third or a half, and end with the maximum, whatever it is."""
    assert client_counts(20) == [1, 2, 3, 4, 6, 8, 12, 16, 20]
    assert client_counts(1) == [1]


def test_the_full_search_doubles_and_fills_the_gap() -> None:
    """The full search doubles the clients until the budget is exceeded, then tries the counts between."""
    outcome = search(full_search(100), lambda clients: measurement(clients, clients * 10, clients * 2))
    assert tried_clients(outcome) == [16, 32, 64, 48]
    assert outcome.best == measurement(48, 480, 96)


def test_the_full_search_goes_down_too() -> None:
    """The full search goes down until a load keeps the budget."""
    outcome = search(full_search(12), lambda clients: measurement(clients, clients * 10, clients * 2))
    assert tried_clients(outcome) == [16, 8, 4, 6]
    assert outcome.best == measurement(6, 60, 12)


def test_if_one_client_exceeds_the_budget_nothing_keeps_it() -> None:
    """The lowest load is tried before the search reports that nothing keeps the budget."""
    outcome = search(full_search(1), lambda clients: measurement(clients, clients * 10, clients * 2))
    assert (tried_clients(outcome)[-1], outcome.best) == (1, None)


def test_two_loads_without_a_gain_end_the_search() -> None:
    """Two loads in a row without a gain end the search."""
    outcome = search(full_search(1e6), lambda clients: measurement(clients, min(clients, 64) * 10, clients))
    assert tried_clients(outcome) == [16, 32, 64, 128, 256]


def test_a_candidate_that_is_no_faster_beyond_the_budget_is_dropped() -> None:
    """One load is enough to drop a candidate: with fewer clients it would answer less."""
    baseline = result(1_000, clients=16)
    outcome = search(local_search(100, baseline), lambda clients: measurement(clients, 1_000, 150))
    assert (tried_clients(outcome), outcome.best, outcome.dropped) == ([16], None, True)


def test_a_candidate_that_is_faster_beyond_the_budget_goes_down() -> None:
    """A candidate that is faster beyond the budget may still win with fewer clients."""
    baseline = result(1_000, clients=16)
    outcome = search(local_search(100, baseline), lambda clients: measurement(clients, clients * 100, clients * 8))
    assert (tried_clients(outcome), outcome.per_s) == ([16, 12], 1_200)
    assert not outcome.dropped


def test_failed_requests_do_not_drop_a_candidate() -> None:
    """After failures the search goes down: if a queue was full, fewer clients may get more answers."""
    baseline = result(1_000, clients=16)
    outcome = search(
        local_search(100, baseline),
        lambda clients: measurement(clients, 10 if clients > 8 else 2_000, 50, errors=int(clients > 8)),
    )
    assert (tried_clients(outcome), outcome.per_s) == ([16, 12, 8], 2_000)


@given(BUDGETS_MS, st.floats(1, 20), st.floats(0.01, 10), SIZES)
def test_no_load_is_tried_twice_and_the_best_is_found(
    budget_ms: float, base_ms: float, item_ms: float, size: int
) -> None:
    """The best load keeps the budget, and no other tried load that keeps it has more answers."""
    outcome = search(full_search(budget_ms), lambda clients: batching_server(clients, base_ms, item_ms, size))
    assert len(set(tried_clients(outcome))) == len(tried_clients(outcome)) <= len(client_counts(1_024))
    within_budget = [each for each in outcome.measurements if each.p95_ms <= budget_ms]
    assert outcome.per_s == max((each.per_s for each in within_budget), default=0)
    assert (outcome.best is None) == (base_ms > budget_ms)


@given(st.sampled_from(client_counts(256)), st.floats(0.01, 0.99), st.floats(0.3, 3), st.floats(0.5, 200))
def test_a_dropped_candidate_could_not_have_won(start: int, share: float, ratio: float, half: float) -> None:
    """If more clients get more answers, a dropped candidate could not have won; otherwise its best load is found."""

    def serve(clients: int) -> Measurement:
        return measurement(clients, 1_000 * clients / (clients + half), 5 + clients)

    budget_ms = serve(start).p95_ms * share
    baseline = result(serve(start).per_s * ratio, budget_ms / 2, clients=start, budget_ms=budget_ms)
    outcome = search(local_search(budget_ms, baseline), serve)
    best = max((serve(each).per_s for each in client_counts(start) if serve(each).p95_ms <= budget_ms), default=0)
    if outcome.dropped:
        assert best <= baseline.per_s * (1 + MARGIN)
    else:
        assert outcome.per_s == best
