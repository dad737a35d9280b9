"""The clock of Redis as a worker sees it."""

from __future__ import annotations

import time

import pytest

from gpuworker.consumer.redis_clock import RedisClock


def test_follows_redis_however_wrong_the_host_is() -> None:
    """After an answer of Redis, its time counts and the host's does not."""
    clock = RedisClock()
    clock.observe(1_000_000_000)
    assert 0 <= clock.now_ms() - 1_000_000_000 < 5_000


def test_a_time_of_redis_becomes_a_monotonic_time() -> None:
    """A deadline that is two seconds away on Redis' clock is two seconds away here."""
    clock = RedisClock()
    clock.observe(1_000_000_000)
    assert clock.to_monotonic(1_000_002_000) - time.monotonic() == pytest.approx(2.0, abs=1.0)
    assert clock.to_monotonic(1_000_002_000) - clock.to_monotonic(1_000_000_500) == pytest.approx(1.5)


def test_the_latest_answer_counts() -> None:
    """If Redis is replaced by one with another clock, the new clock counts at once."""
    clock = RedisClock()
    clock.observe(1_000_000_000)
    clock.observe(2_000_000_000)
    assert clock.now_ms() >= 1_999_999_999


def test_before_the_first_answer_the_time_of_the_host_counts() -> None:
    """A worker that has just started assumes that both clocks agree."""
    assert RedisClock().now_ms() == pytest.approx(time.time() * 1000, abs=5_000)
