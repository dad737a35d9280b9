"""How long an engine may be silent."""

from __future__ import annotations

import pytest

from gpuworker.policy.hang_timeout import FACTOR, FIRST_S, STRETCH, Patience


def test_before_the_first_batch_it_is_long() -> None:
    """Nobody knows the model yet; a longer setting and a wait for full batches count."""
    assert Patience(10.0, 0.0).bound_s == FIRST_S
    assert Patience(600.0, 2.0).bound_s == 602.0


@pytest.mark.parametrize(("seconds", "full_s", "expected"), [(0.1, 0.2, 10.0), (3.0, 1.0, 30.0), (0.5, 4.0, 40.0)])
def test_it_is_a_multiple_of_the_slowest_batch(seconds: float, full_s: float, expected: float) -> None:
    """Of one that ran or of a full one, whichever takes longer; never less than the setting."""
    patience = Patience(10.0, 0.0)
    patience.ran(seconds, full_s)
    assert patience.bound_s == pytest.approx(expected)
    assert FACTOR == 10


def test_what_small_batches_say_of_a_full_one_counts_so_far_and_no_further() -> None:
    """A first batch of a few tokens, slow because it was the first, would have it take hours."""
    patience = Patience(5.0, 0.0)
    patience.ran(1.0, 2_000.0)
    assert patience.bound_s == FACTOR * STRETCH
    patience.ran(0.01, 0.1)
    assert patience.bound_s < 10.0


def test_a_new_engine_has_its_own_first_batch() -> None:
    """It compiles kernels as the one before it did."""
    patience = Patience(5.0, 0.0)
    patience.ran(0.1, 0.1)
    patience.restarted()
    assert patience.bound_s == FIRST_S


def test_a_slow_batch_is_forgotten_slowly() -> None:
    """Faster ones do not make it short at once."""
    patience = Patience(1.0, 0.0)
    patience.ran(5.0, 0.0)
    patience.ran(0.1, 0.0)
    assert 49 < patience.bound_s < 50
    for _ in range(2_000):
        patience.ran(0.1, 0.0)
    assert patience.bound_s == pytest.approx(1.0)


def test_a_wait_for_a_full_batch_is_no_hang() -> None:
    """It comes on top."""
    patience = Patience(1.0, 60.0)
    patience.ran(0.01, 0.01)
    assert patience.bound_s == 61.0
