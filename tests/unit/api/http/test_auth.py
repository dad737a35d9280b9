"""Who is let in: what is taken for a key, and how long who guesses has to wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.auth import FAILURES_PER_S, MAX_ADDRESSES, MAX_FAILURES, FailureLimiter, is_loopback
from shared.api_keys import ApiKey, digest_of, new_id, new_secret


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - only looked at
        ("::", False),
        ("10.0.0.1", False),
        ("gateway.internal", False),
        ("", False),
    ],
)
def test_what_nobody_from_elsewhere_can_reach(host: str, expected: bool) -> None:
    """A name may mean any address."""
    assert is_loopback(host) is expected


def test_who_guesses_has_to_wait() -> None:
    """After so many wrong keys; then there is one more try each time that the wait is over."""
    failures = FailureLimiter()
    for _ in range(MAX_FAILURES):
        assert failures.wait_s("a", 0.0) == 0
        failures.record_failure("a", 0.0)
    wait_s = failures.wait_s("a", 0.0)
    assert wait_s == pytest.approx(1 / FAILURES_PER_S)
    assert failures.wait_s("b", 0.0) == 0
    assert failures.wait_s("a", wait_s + 1e-6) == 0
    failures.record_failure("a", wait_s)
    assert failures.wait_s("a", wait_s) > 0
    assert failures.wait_s("a", 10_000.0) == 0


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50)), max_size=60))
def test_a_wait_is_never_longer_than_for_one_more(steps: list[tuple[float, int]]) -> None:
    """However many wrong keys came at once: whoever stops guessing may soon try again."""
    failures, now = FailureLimiter(), 0.0
    for passed, wrong in steps:
        now += passed
        for _ in range(wrong):
            failures.record_failure("a", now)
        assert 0 <= failures.wait_s("a", now) <= 1 / FAILURES_PER_S


def test_addresses_are_bounded() -> None:
    """The one that has not been seen for longest is forgotten."""
    failures = FailureLimiter()
    for number in range(MAX_ADDRESSES + 1):
        for _ in range(MAX_FAILURES if number in (0, 1) else 1):
            failures.record_failure(str(number), 0.0)
    assert failures.wait_s("0", 0.0) == 0
    assert failures.wait_s("1", 0.0) > 0


def test_keys_are_never_the_same_and_no_secret_is_in_its_digest() -> None:
    """At least 64 bits name one, and 256 open it."""
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == len({new_id() for _ in range(100)}) == 100
    assert all(len(each) >= 43 and "." not in each and each not in digest_of(each) for each in secrets)


@pytest.mark.parametrize(("expires_ms", "now_ms", "expected"), [(None, 1e18, True), (5, 4.9, True), (5, 5.0, False)])
def test_a_key_may_expire(expires_ms: int | None, now_ms: float, expected: bool) -> None:
    """To the millisecond."""
    assert ApiKey("a", "", ("embed",), "", "", 0, expires_ms).is_live(now_ms) is expected
