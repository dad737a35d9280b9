"""API keys: which hosts need none, how long an address that guesses has to wait, and when a key expires."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.auth import FAILURES_PER_S, MAX_ADDRESSES, MAX_FAILURES, FailureLimiter
from shared.api_keys import ApiKey, digest_of, new_id, new_secret
from shared.process.listener import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - no listener
        ("::", False),
        ("10.0.0.1", False),
        ("gateway.internal", False),
        ("", False),
    ],
)
def test_loopback_hosts(host: str, expected: bool) -> None:
    """Only loopback addresses and localhost count as loopback: any other name may resolve to any address."""
    assert is_loopback(host) is expected


def test_an_address_that_guesses_has_to_wait() -> None:
    """After MAX_FAILURES wrong keys an address has to wait, and has one more attempt after each wait."""
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
def test_a_wait_is_never_longer_than_for_one_attempt(steps: list[tuple[float, int]]) -> None:
    """The wait stays below that for one attempt, however many wrong keys arrived at once."""
    failures, now = FailureLimiter(), 0.0
    for elapsed_s, failed in steps:
        now += elapsed_s
        for _ in range(failed):
            failures.record_failure("a", now)
        assert 0 <= failures.wait_s("a", now) <= 1 / FAILURES_PER_S


def test_addresses_are_bounded() -> None:
    """The limiter holds at most MAX_ADDRESSES, and drops the one whose last failure is the oldest."""
    failures = FailureLimiter()
    for number in range(MAX_ADDRESSES + 1):
        for _ in range(MAX_FAILURES if number in (0, 1) else 1):
            failures.record_failure(str(number), 0.0)
    assert failures.wait_s("0", 0.0) == 0
    assert failures.wait_s("1", 0.0) > 0


def test_keys_are_unique_and_a_digest_does_not_hold_the_secret() -> None:
    """New ids and secrets differ; a secret has at least 43 characters, 256 bits, and is not in its digest."""
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == len({new_id() for _ in range(100)}) == 100
    assert all(len(each) >= 43 and "." not in each and each not in digest_of(each) for each in secrets)


@pytest.mark.parametrize(("expires_ms", "now_ms", "expected"), [(None, 1e18, True), (5, 4.9, True), (5, 5.0, False)])
def test_a_key_may_expire(expires_ms: int | None, now_ms: float, expected: bool) -> None:
    """A key is valid until the millisecond at which it expires."""
    assert ApiKey("a", "", ("embed",), "", "", 0, expires_ms).is_live(now_ms) is expected
