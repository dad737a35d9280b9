"""How long an engine may be silent."""

from __future__ import annotations

import pytest

from gpuworker.policy.hang_timeout import FACTOR, FIRST_S, MAX_EXTRAPOLATION, HangTimeout


def test_before_the_first_batch_it_is_long() -> None:
    """The speed of the model is unknown; a longer setting and a wait for full batches count."""
    assert HangTimeout(10.0, 0.0).timeout_s == FIRST_S
    assert HangTimeout(600.0, 2.0).timeout_s == 602.0


@pytest.mark.parametrize(("seconds", "full_s", "expected"), [(0.1, 0.2, 10.0), (3.0, 1.0, 30.0), (0.5, 4.0, 40.0)])
def test_it_is_a_multiple_of_the_slowest_batch(seconds: float, full_s: float, expected: float) -> None:
    """Of one that ran or of a full one, whichever takes longer; never less than the setting."""
    timeout = HangTimeout(10.0, 0.0)
    timeout.record_batch(seconds, full_s)
    assert timeout.timeout_s == pytest.approx(expected)
    assert FACTOR == 10


def test_extrapolation_from_small_batches_is_bounded() -> None:
    """A first batch of a few tokens, slow because it was the first, would predict hours."""
    timeout = HangTimeout(5.0, 0.0)
    timeout.record_batch(1.0, 2_000.0)
    assert timeout.timeout_s == FACTOR * MAX_EXTRAPOLATION
    timeout.record_batch(0.01, 0.1)
    assert timeout.timeout_s < 10.0


def test_the_first_batch_of_a_new_engine_may_be_as_slow_as_that_of_the_engine_before() -> None:
    """It compiles kernels as that one did; an engine that ends before its first batch changes nothing."""
    timeout = HangTimeout(5.0, 0.0)
    timeout.reset()
    assert timeout.timeout_s == FIRST_S
    timeout.record_batch(3.0, 0.1)
    for _ in range(1_000):
        timeout.record_batch(0.1, 0.1)
    assert timeout.timeout_s == 5.0
    for _ in range(2):
        timeout.reset()
        assert timeout.timeout_s == pytest.approx(30.0)
    timeout.record_batch(0.2, 0.1)
    assert 29 < timeout.timeout_s < 30


def test_a_hang_is_found_as_soon_in_a_new_engine() -> None:
    """The speed of the model is known: an input that hangs each time does not take minutes for each try."""
    timeout = HangTimeout(5.0, 0.0)
    timeout.record_batch(0.1, 0.1)
    timeout.reset()
    assert timeout.timeout_s == 5.0


def test_a_slow_batch_is_forgotten_slowly() -> None:
    """Faster batches shorten the timeout step by step."""
    timeout = HangTimeout(1.0, 0.0)
    timeout.record_batch(5.0, 0.0)
    timeout.record_batch(0.1, 0.0)
    assert 49 < timeout.timeout_s < 50
    for _ in range(2_000):
        timeout.record_batch(0.1, 0.0)
    assert timeout.timeout_s == pytest.approx(1.0)


def test_a_wait_for_a_full_batch_is_no_hang() -> None:
    """The wait is added to the timeout."""
    timeout = HangTimeout(1.0, 60.0)
    timeout.record_batch(0.01, 0.01)
    assert timeout.timeout_s == 61.0
