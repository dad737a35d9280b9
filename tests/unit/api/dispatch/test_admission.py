"""Admission: who is refused, and when they may come again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dispatch.admission import (
    IN_TIME,
    JITTER,
    RETRY_LEAST_S,
    RETRY_MOST_S,
    Cluster,
    Grace,
    admit,
    fleet_rate,
    most_tokens,
    retry_after_s,
)
from shared.errors import NoWorker, Overloaded, RedbatchError, RedisUnreachable
from shared.messages import MOST_TOKENS

GRACE = Grace(redis_s=5.0, worker_s=60.0)


@pytest.mark.parametrize(
    ("cluster", "error"),
    [
        (Cluster(), None),
        (Cluster(redis_down_s=5.0), None),
        (Cluster(redis_down_s=0.5), None),
        (Cluster(redis_down_s=5.1), RedisUnreachable),
        (Cluster(redis_down_s=5.1, worker_unseen_s=None), RedisUnreachable),
        (Cluster(worker_unseen_s=None), NoWorker),
        (Cluster(worker_unseen_s=60.0), None),
        (Cluster(worker_unseen_s=60.1), NoWorker),
        (Cluster(memory_ratio=0.7), None),
        (Cluster(memory_ratio=0.71), Overloaded),
    ],
)
def test_a_request_is_refused_past_a_grace_and_not_before(cluster: Cluster, error: type[RedbatchError] | None) -> None:
    """Redis' absence is told before a worker's. How deep the queue is, is judged in Redis."""
    refusal = admit(cluster, GRACE, budget_s=10.0, share=0.0)
    assert (None if refusal is None else type(refusal)) is error


@pytest.mark.parametrize(("down_s", "budget_s", "taken"), [(0.9, 1.0, True), (1.1, 1.0, False), (4.9, 10.0, True)])
def test_nobody_waits_for_redis_in_vain(down_s: float, budget_s: float, taken: bool) -> None:
    """An outage that has lasted longer than a request has time is not expected to end within it."""
    assert (admit(Cluster(redis_down_s=down_s), GRACE, budget_s, 0.0) is None) is taken


@given(st.floats(0, 1e6), st.floats(0, 1))
def test_refused_clients_come_back_spread(down_s: float, share: float) -> None:
    """After as long as it has lasted, at least a second and at most half a minute; and not all at once."""
    for cluster in (
        Cluster(redis_down_s=down_s),
        Cluster(worker_unseen_s=down_s),
        Cluster(worker_unseen_s=None),
        Cluster(memory_ratio=0.9),
    ):
        first, last, some = (admit(cluster, GRACE, 10.0, each) for each in (0.0, 1.0, share))
        if first is None or last is None or some is None:
            assert first is last is some
            continue
        assert first.retry_after_s is not None
        assert RETRY_LEAST_S <= first.retry_after_s <= RETRY_MOST_S
        assert last.retry_after_s == pytest.approx((1 + JITTER) * first.retry_after_s)
        assert some.retry_after_s == pytest.approx((1 + JITTER * share) * first.retry_after_s)


def test_a_refusal_says_for_how_long_the_part_has_been_missing() -> None:
    """The message names the seconds, so that an operator knows when it began."""
    refused = (
        admit(Cluster(redis_down_s=12.2), GRACE, 10.0, 0.0),
        admit(Cluster(worker_unseen_s=77.0), GRACE, 10.0, 0.0),
    )
    assert [str(each) for each in refused] == [
        "Redis has not answered for 12.2 s: try again later.",
        "No worker has lived for 77 s: start one, then try again.",
    ]


@pytest.mark.parametrize(
    ("tokens", "rate", "share", "expected"),
    [
        (0, 0.0, 0.0, RETRY_LEAST_S),
        (10**6, 0.0, 0.0, RETRY_LEAST_S),
        (100, 1_000.0, 0.0, RETRY_LEAST_S),
        (7_000, 1_000.0, 0.0, 7.0),
        (7_000, 1_000.0, 1.0, 7.0 * (1 + JITTER)),
        (10**9, 1.0, 0.0, RETRY_MOST_S),
    ],
)
def test_what_was_too_much_is_done_when_a_refused_request_comes_again(
    tokens: int, rate: float, share: float, expected: float
) -> None:
    """The wait follows the measured rate within its bounds, and grows with the client's place in the jitter."""
    assert expected == retry_after_s(tokens, rate, share)


@given(st.integers(0, 10**9), st.floats(0, 10**9), st.floats(0, 1))
def test_the_wait_stays_within_its_bounds(tokens: int, rate: float, share: float) -> None:
    """Whatever was measured, nobody is told to come at once or after a minute."""
    wait = retry_after_s(tokens, rate, share)
    assert RETRY_LEAST_S <= wait <= RETRY_MOST_S * (1 + JITTER)


@pytest.mark.parametrize(
    ("rate", "budget_s", "expected"),
    [(0.0, 10.0, MOST_TOKENS), (1_000.0, 10.0, 10_000 * IN_TIME), (1_000.0, 0.0, 0)],
)
def test_before_a_request_is_no_more_than_is_done_in_its_time(rate: float, budget_s: float, expected: float) -> None:
    """At the measured rate, with a margin; without one there is no bound."""
    assert most_tokens(rate, budget_s) == expected


@pytest.mark.parametrize(
    ("rates", "expected"),
    [([], 0.0), ([0.0, 0.0], 0.0), ([100.0, 300.0], 400.0), ([100.0, 0.0, 300.0, 0.0], 800.0)],
)
def test_a_worker_that_has_just_come_counts_as_the_others_do(rates: list[float], expected: float) -> None:
    """Else a fleet that grows under load would go on refusing what it could do."""
    assert fleet_rate(rates) == expected
