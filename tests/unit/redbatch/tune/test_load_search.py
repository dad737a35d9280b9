"""Which load is tried next."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from redbatch.tune.load_search import LoadSearch, client_counts, full_search, local_search
from redbatch.tune.measurement import MARGIN, Measurement, TrialResult
from tests.unit.redbatch.tune.measurements import found, point, served

BUDGETS_MS = st.floats(1, 2_000)
SIZES = st.sampled_from([1, 4, 8, 16, 64, 256])


def climbed(ladder: LoadSearch, serve: Callable[[int], Measurement]) -> TrialResult:
    """Climbs to the end."""
    clients = next(ladder)
    while True:
        try:
            clients = ladder.send(serve(clients))
        except StopIteration as end:
            result: TrialResult = end.value
            return result


def tried(result: TrialResult) -> list[int]:
    """The numbers of clients in the order in which they were tried."""
    return [each.clients for each in result.points]


def test_rungs_grow_by_a_third_or_a_half() -> None:
    """And end with the most, whatever that is."""
    assert client_counts(20) == [1, 2, 3, 4, 6, 8, 12, 16, 20]
    assert client_counts(1) == [1]


def test_the_first_search_leaps_and_fills_the_gap() -> None:
    """Up in doublings until the budget breaks, then what lies between."""
    result = climbed(full_search(100), lambda clients: point(clients, clients * 10, clients * 2))
    assert tried(result) == [16, 32, 64, 48]
    assert result.best == point(48, 480, 96)


def test_the_first_search_goes_down_too() -> None:
    """Until one keeps the budget."""
    result = climbed(full_search(12), lambda clients: point(clients, clients * 10, clients * 2))
    assert tried(result) == [16, 8, 4, 6]
    assert result.best == point(6, 60, 12)


def test_where_one_client_breaks_the_budget_nothing_keeps_it() -> None:
    """The lowest load is tried before that is said."""
    result = climbed(full_search(1), lambda clients: point(clients, clients * 10, clients * 2))
    assert (tried(result)[-1], result.best) == (1, None)


def test_more_clients_that_bring_nothing_end_it() -> None:
    """Two loads in a row have to bring nothing."""
    result = climbed(full_search(1e6), lambda clients: point(clients, min(clients, 64) * 10, clients))
    assert tried(result) == [16, 32, 64, 128, 256]


def test_a_setting_that_is_no_faster_beyond_the_budget_is_dropped() -> None:
    """One load says it: with fewer clients it would answer less."""
    against = found(1_000, clients=16)
    result = climbed(local_search(100, against), lambda clients: point(clients, 1_000, 150))
    assert (tried(result), result.best, result.dropped) == ([16], None, True)


def test_a_setting_that_is_faster_beyond_the_budget_goes_down() -> None:
    """It may still win."""
    against = found(1_000, clients=16)
    result = climbed(local_search(100, against), lambda clients: point(clients, clients * 100, clients * 8))
    assert (tried(result), result.per_s) == ([16, 12], 1_200)
    assert not result.dropped


def test_failed_requests_say_nothing_about_speed() -> None:
    """Where a queue was full, fewer clients may well answer more."""
    against = found(1_000, clients=16)
    result = climbed(
        local_search(100, against),
        lambda clients: point(clients, 10 if clients > 8 else 2_000, 50, errors=int(clients > 8)),
    )
    assert (tried(result), result.per_s) == ([16, 12, 8], 2_000)


@given(BUDGETS_MS, st.floats(1, 20), st.floats(0.01, 10), SIZES)
def test_no_load_is_tried_twice_and_all_that_is_said_was_measured(
    budget_ms: float, base_ms: float, item_ms: float, size: int
) -> None:
    """The best keeps the budget, and no load that was tried and kept it has more answers."""
    result = climbed(full_search(budget_ms), lambda clients: served(clients, base_ms, item_ms, size))
    assert len(set(tried(result))) == len(tried(result)) <= len(client_counts(1_024))
    kept = [each for each in result.points if each.p95_ms <= budget_ms]
    assert result.per_s == max((each.per_s for each in kept), default=0)
    assert (result.best is None) == (base_ms > budget_ms)


@given(st.sampled_from(client_counts(256)), st.floats(0.01, 0.99), st.floats(0.3, 3), st.floats(0.5, 200))
def test_what_is_dropped_could_not_have_won(start: int, share: float, ratio: float, half: float) -> None:
    """Beyond the budget, on a server that answers more with more clients: else the best load there is is found."""

    def serve(clients: int) -> Measurement:
        return point(clients, 1_000 * clients / (clients + half), 5 + clients)

    budget_ms = serve(start).p95_ms * share
    against = found(serve(start).per_s * ratio, budget_ms / 2, clients=start, budget_ms=budget_ms)
    result = climbed(local_search(budget_ms, against), serve)
    best = max((serve(each).per_s for each in client_counts(start) if serve(each).p95_ms <= budget_ms), default=0)
    if result.dropped:
        assert best <= against.per_s * (1 + MARGIN)
    else:
        assert result.per_s == best
