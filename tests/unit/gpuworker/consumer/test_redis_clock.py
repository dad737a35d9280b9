"""Redis' clock as a worker sees it."""

from __future__ import annotations

import time

import pytest

from gpuworker.consumer.redis_clock import RedisClock


def test_follows_redis_however_wrong_the_host_is() -> None:
    """After an answer of Redis, its time counts and the host's does not."""
    clock = RedisClock()
    clock.saw(1_000_000_000)
    assert 0 <= clock.now_ms() - 1_000_000_000 < 5_000


def test_a_time_of_redis_becomes_a_monotonic_time() -> None:
    """A deadline that is two seconds away on Redis' clock is two seconds away here."""
    clock = RedisClock()
    clock.saw(1_000_000_000)
    assert clock.monotonic(1_000_002_000) - time.monotonic() == pytest.approx(2.0, abs=1.0)
    assert clock.monotonic(1_000_002_000) - clock.monotonic(1_000_000_500) == pytest.approx(1.5)


def test_the_latest_answer_counts() -> None:
    """A Redis that was replaced by one with another clock is followed at once."""
    clock = RedisClock()
    clock.saw(1_000_000_000)
    clock.saw(2_000_000_000)
    assert clock.now_ms() >= 1_999_999_999


def test_before_redis_has_spoken_the_host_time_stands_in() -> None:
    """A worker that has just started takes both clocks for the same."""
    assert RedisClock().now_ms() == pytest.approx(time.time() * 1000, abs=5_000)
