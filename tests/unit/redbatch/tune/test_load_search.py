"""Which load is tried next."""

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
    """Climbs to the end."""
    clients = next(generator)
    while True:
        try:
            clients = generator.send(serve(clients))
        except StopIteration as end:
            outcome: TrialResult = end.value
            return outcome


def tried(outcome: TrialResult) -> list[int]:
    """The numbers of clients in the order in which they were tried."""
    return [each.clients for each in outcome.measurements]


def test_rungs_grow_by_a_third_or_a_half() -> None:
    """And end with the most, whatever that is."""
    assert client_counts(20) == [1, 2, 3, 4, 6, 8, 12, 16, 20]
    assert client_counts(1) == [1]


def test_the_first_search_leaps_and_fills_the_gap() -> None:
    """Up in doublings until the budget breaks, then what lies between."""
    outcome = search(full_search(100), lambda clients: measurement(clients, clients * 10, clients * 2))
    assert tried(outcome) == [16, 32, 64, 48]
    assert outcome.best == measurement(48, 480, 96)


def test_the_first_search_goes_down_too() -> None:
    """Until one keeps the budget."""
    outcome = search(full_search(12), lambda clients: measurement(clients, clients * 10, clients * 2))
    assert tried(outcome) == [16, 8, 4, 6]
    assert outcome.best == measurement(6, 60, 12)


def test_where_one_client_breaks_the_budget_nothing_keeps_it() -> None:
    """The lowest load is tried before that is said."""
    outcome = search(full_search(1), lambda clients: measurement(clients, clients * 10, clients * 2))
    assert (tried(outcome)[-1], outcome.best) == (1, None)


def test_more_clients_that_bring_nothing_end_it() -> None:
    """Two loads in a row have to bring nothing."""
    outcome = search(full_search(1e6), lambda clients: measurement(clients, min(clients, 64) * 10, clients))
    assert tried(outcome) == [16, 32, 64, 128, 256]


def test_a_setting_that_is_no_faster_beyond_the_budget_is_dropped() -> None:
    """One load says it: with fewer clients it would answer less."""
    baseline = result(1_000, clients=16)
    outcome = search(local_search(100, baseline), lambda clients: measurement(clients, 1_000, 150))
    assert (tried(outcome), outcome.best, outcome.dropped) == ([16], None, True)


def test_a_setting_that_is_faster_beyond_the_budget_goes_down() -> None:
    """It may still win."""
    baseline = result(1_000, clients=16)
    outcome = search(local_search(100, baseline), lambda clients: measurement(clients, clients * 100, clients * 8))
    assert (tried(outcome), outcome.per_s) == ([16, 12], 1_200)
    assert not outcome.dropped


def test_failed_requests_say_nothing_about_speed() -> None:
    """Where a queue was full, fewer clients may well answer more."""
    baseline = result(1_000, clients=16)
    outcome = search(
        local_search(100, baseline),
        lambda clients: measurement(clients, 10 if clients > 8 else 2_000, 50, errors=int(clients > 8)),
    )
    assert (tried(outcome), outcome.per_s) == ([16, 12, 8], 2_000)


@given(BUDGETS_MS, st.floats(1, 20), st.floats(0.01, 10), SIZES)
def test_no_load_is_tried_twice_and_all_that_is_said_was_measured(
    budget_ms: float, base_ms: float, item_ms: float, size: int
) -> None:
    """The best keeps the budget, and no load that was tried and kept it has more answers."""
    outcome = search(full_search(budget_ms), lambda clients: batching_server(clients, base_ms, item_ms, size))
    assert len(set(tried(outcome))) == len(tried(outcome)) <= len(client_counts(1_024))
    kept = [each for each in outcome.measurements if each.p95_ms <= budget_ms]
    assert outcome.per_s == max((each.per_s for each in kept), default=0)
    assert (outcome.best is None) == (base_ms > budget_ms)


@given(st.sampled_from(client_counts(256)), st.floats(0.01, 0.99), st.floats(0.3, 3), st.floats(0.5, 200))
def test_what_is_dropped_could_not_have_won(start: int, share: float, ratio: float, half: float) -> None:
    """Beyond the budget, on a server that answers more with more clients: else the best load there is is found."""

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
