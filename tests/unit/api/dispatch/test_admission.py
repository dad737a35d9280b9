"""Admission: which requests are refused, and when a refused client may retry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dispatch.admission import (
    JITTER,
    MAX_RETRY_AFTER_S,
    MIN_RETRY_AFTER_S,
    QUEUE_TIME_SHARE,
    ClusterState,
    Grace,
    admit,
    max_tokens,
    quota_error,
    retry_after_s,
)
from shared.errors import (
    ModelFailingError,
    NoWorkerError,
    OverloadedError,
    RateLimitedError,
    RedbatchError,
    RedisUnreachableError,
)
from shared.messages import MAX_TOKENS
from shared.tenants import Quota, QuotaWait

GRACE = Grace(redis_s=5.0, worker_s=60.0)


@pytest.mark.parametrize(
    ("cluster", "error"),
    [
        (ClusterState(), None),
        (ClusterState(redis_down_s=5.0), None),
        (ClusterState(redis_down_s=0.5), None),
        (ClusterState(redis_down_s=5.1), RedisUnreachableError),
        (ClusterState(redis_down_s=5.1, worker_unseen_s=None), RedisUnreachableError),
        (ClusterState(worker_unseen_s=None), NoWorkerError),
        (ClusterState(worker_unseen_s=60.0), None),
        (ClusterState(worker_unseen_s=60.1), NoWorkerError),
        (ClusterState(failing="OSError"), ModelFailingError),
        (ClusterState(failing="OSError", redis_down_s=5.1), RedisUnreachableError),
        (ClusterState(memory_ratio=0.7), None),
        (ClusterState(memory_ratio=0.71), OverloadedError),
    ],
)
def test_a_request_is_refused_past_a_grace_and_not_before(
    cluster: ClusterState, error: type[RedbatchError] | None
) -> None:
    """An outage of Redis is reported before the absence of workers. The depth of the queue is judged in Redis."""
    refusal = admit(cluster, GRACE, budget_s=10.0, jitter=0.0)
    assert (None if refusal is None else type(refusal)) is error


@pytest.mark.parametrize(("down_s", "budget_s", "accepted"), [(0.9, 1.0, True), (1.1, 1.0, False), (4.9, 10.0, True)])
def test_no_request_waits_for_redis_in_vain(down_s: float, budget_s: float, accepted: bool) -> None:
    """An outage that has lasted longer than a request has time is not expected to end within it."""
    assert (admit(ClusterState(redis_down_s=down_s), GRACE, budget_s, 0.0) is None) is accepted


@given(st.floats(0, 1e6), st.floats(0, 1))
def test_retries_of_refused_clients_are_spread(down_s: float, jitter: float) -> None:
    """The wait is as long as the outage so far, from a second to half a minute, and jitter spreads the clients."""
    for cluster in (
        ClusterState(redis_down_s=down_s),
        ClusterState(worker_unseen_s=down_s),
        ClusterState(worker_unseen_s=None),
        ClusterState(memory_ratio=0.9),
    ):
        first, last, some = (admit(cluster, GRACE, 10.0, each) for each in (0.0, 1.0, jitter))
        if first is None or last is None or some is None:
            assert first is last is some
            continue
        assert first.retry_after_s is not None
        assert MIN_RETRY_AFTER_S <= first.retry_after_s <= MAX_RETRY_AFTER_S
        assert last.retry_after_s == pytest.approx((1 + JITTER) * first.retry_after_s)
        assert some.retry_after_s == pytest.approx((1 + JITTER * jitter) * first.retry_after_s)


def test_a_refusal_says_for_how_long_the_part_has_been_missing() -> None:
    """The message names the seconds, so that an operator knows when the outage began."""
    refused = (
        admit(ClusterState(redis_down_s=12.2), GRACE, 10.0, 0.0),
        admit(ClusterState(worker_unseen_s=77.0), GRACE, 10.0, 0.0),
    )
    assert [str(each) for each in refused] == [
        "Redis has not answered for 12.2 s: try again later.",
        "No worker has been alive for 77 s: start one, then try again. If it ended by itself, its log says why.",
    ]


@pytest.mark.parametrize(
    ("tokens", "rate", "jitter", "expected"),
    [
        (0, 0.0, 0.0, MIN_RETRY_AFTER_S),
        (10**6, 0.0, 0.0, MIN_RETRY_AFTER_S),
        (100, 1_000.0, 0.0, MIN_RETRY_AFTER_S),
        (7_000, 1_000.0, 0.0, 7.0),
        (7_000, 1_000.0, 1.0, 7.0 * (1 + JITTER)),
        (10**9, 1.0, 0.0, MAX_RETRY_AFTER_S),
    ],
)
def test_the_excess_is_processed_before_a_refused_request_is_retried(
    tokens: int, rate: float, jitter: float, expected: float
) -> None:
    """The wait follows the measured rate within its bounds, and grows with the client's place in the jitter."""
    assert expected == retry_after_s(tokens, rate, jitter)


@given(st.integers(0, 10**9), st.floats(0, 10**9), st.floats(0, 1))
def test_the_wait_stays_within_its_bounds(tokens: int, rate: float, jitter: float) -> None:
    """No measured rate makes a client retry at once or after more than the maximum with its jitter."""
    wait = retry_after_s(tokens, rate, jitter)
    assert MIN_RETRY_AFTER_S <= wait <= MAX_RETRY_AFTER_S * (1 + JITTER)


@pytest.mark.parametrize(
    ("rate", "budget_s", "expected"),
    [(0.0, 10.0, MAX_TOKENS), (1_000.0, 10.0, 10_000 * QUEUE_TIME_SHARE), (1_000.0, 0.0, 0)],
)
def test_a_lane_holds_no_more_than_is_processed_in_a_requests_time(
    rate: float, budget_s: float, expected: float
) -> None:
    """The bound follows the measured rate, with a margin; without a rate there is no bound."""
    assert max_tokens(rate, budget_s) == expected


@pytest.mark.parametrize(
    ("tokens_per_s", "text"),
    [(5_000.0, "5000"), (1e6, "1000000"), (1e9, "1000000000"), (0.1 + 0.2, "0.3"), (1.5, "1.5")],
)
def test_the_error_of_a_quota_has_its_figure_without_an_exponent(tokens_per_s: float, text: str) -> None:
    """Clients and operators compare it with the setting."""
    error = quota_error(10, Quota(tokens_per_s=tokens_per_s), QuotaWait(500, "rate"), 0.0)
    assert str(error) == f"The tenant's rate limit of {text} tokens per second is exceeded: try again in 0.5 s."


@pytest.mark.parametrize(
    ("wait_s", "text"),
    [
        (0.001, "0.1 s"),
        (0.7, "0.7 s"),
        (1.04, "1.1 s"),
        (60, "60.0 s"),
        (60.001, "2 min"),
        (3_540, "59 min"),
        (3_541, "1 h 00 min"),
        (47_100, "13 h 05 min"),
        (86_400, "24 h 00 min"),
    ],
)
def test_a_wait_is_never_shown_shorter_than_it_is(wait_s: float, text: str) -> None:
    """In tenths of seconds, or in hours and minutes, rounded up; clients have the seconds, unrounded."""
    error = quota_error(10, Quota(daily_tokens=100), QuotaWait(round(wait_s * 1_000), "day"), 0.0)
    assert isinstance(error, RateLimitedError)
    assert str(error).endswith(f": try again in {text}.")
    assert error.retry_after_s == wait_s
