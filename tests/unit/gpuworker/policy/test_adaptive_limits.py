"""What an engine learns of its batches, and the limits that it makes of that."""

from __future__ import annotations

import pytest

from gpuworker.policy.batching import OVERHEAD_TOKENS, Limits
from gpuworker.policy.costs import Costs
from gpuworker.policy.adaptive_limits import Pace
from gpuworker.policy.batch_wait import Forming, Outlook

COSTS = Costs(0.020, 0.0001)
BACK_AT_S = 0.002
ADAPTIVE = Limits(64, 16_384, wait_s=None)
EIGHT = Forming(8, 20.0)


def outlook_of(pace: Pace) -> Outlook:
    """Returns what there is to wait for, which must have been learnt."""
    outlook = pace.limits(0, 0).outlook
    assert outlook is not None
    return outlook


def two_groups(pace: Pace, rounds: int, costs: Costs = COSTS) -> float:
    """Plays two groups of eight clients that take turns, each back 2 ms after its answers; returns the time then."""
    now = 0.0
    for round_ in range(rounds):
        tokens = 8 * (10 + 10 * (round_ % 4))
        now += costs.seconds(tokens)
        pace.ran(now, costs.seconds(tokens), 8, tokens, 8)
        pace.arrived(now + BACK_AT_S, 8)
    return now


def test_before_the_first_batch_there_is_nothing_to_wait_for() -> None:
    """No outlook."""
    pace = Pace(ADAPTIVE, 1)
    pace.arrived(1.0, 3)
    assert pace.limits(0, 0).outlook is None


def test_two_groups_of_clients_are_joined() -> None:
    """After some rounds the engine waits for the other group, to run both as one batch."""
    pace = Pace(ADAPTIVE, 1)
    now = two_groups(pace, 20) + 0.030
    pace.ran(now, 0.030, 8, 160, 8)
    until = outlook_of(pace).until(EIGHT, now)
    assert now + BACK_AT_S < until < now + 2 * BACK_AT_S
    pace.arrived(until, 8)
    assert pace.limits(0, 0).outlook is None, "all are back"


def test_on_a_device_without_a_fixed_part_they_are_left_alone() -> None:
    """The same clients, where a batch takes its tokens' time and no more."""
    pace = Pace(ADAPTIVE, 1)
    now = two_groups(pace, 20, Costs(0.0, 0.0002)) + 0.032
    pace.ran(now, 0.032, 8, 160, 8)
    assert outlook_of(pace).until(EIGHT, now) == now


@pytest.mark.parametrize("wait_s", [0.0, 0.005])
def test_a_fixed_wait_learns_nothing_of_clients(wait_s: float) -> None:
    """Nor does none: there is no outlook, whatever runs."""
    pace = Pace(Limits(64, 16_384, wait_s), 1)
    two_groups(pace, 20)
    assert pace.limits(0, 0).outlook is None


def test_a_fixed_wait_learns_what_to_leave_before_a_deadline() -> None:
    """About what a batch takes; without a wait nobody asks, and nothing is kept."""
    fixed, none = Pace(Limits(64, 16_384, 0.005), 1), Pace(Limits(64, 16_384), 1)
    for pace in (fixed, none):
        for k in range(50):
            pace.ran(k * 0.04, 0.04, 8, 200, 8)
    assert fixed.limits(0, 0).reserve_s == pytest.approx(0.04, rel=0.01)
    assert none.limits(0, 0).reserve_s == 0


def test_batches_are_split_unless_full_ones_are_wanted() -> None:
    """With two runners and 900 tokens in sight each batch may have half of them; with a fixed wait all."""
    assert [Pace(Limits(64, 512, wait_s), 2).limits(400, 500).max_tokens for wait_s in (0.0, None, 0.01)] == [
        450,
        450,
        512,
    ]


def test_padded_batches_tell_what_their_fixed_part_is_worth() -> None:
    """On a device where that is 200 tokens, it is learnt with any wait; a packed batch has no padding to weigh."""
    for wait_s in (0.0, None, 0.01):
        padded, packed = (Pace(Limits(64, 16_384, wait_s, packed=packed), 1) for packed in (False, True))
        two_groups(padded, 20)
        two_groups(packed, 20)
        assert padded.limits(0, 0).overhead_tokens == pytest.approx(200, rel=0.05)
        assert packed.limits(0, 0).overhead_tokens == OVERHEAD_TOKENS


def test_batches_of_one_size_say_nothing_of_their_fixed_part() -> None:
    """It is never taken for less than it is at first, nor for more than a batch may have."""
    pace, free = Pace(ADAPTIVE, 1), Pace(ADAPTIVE, 1)
    for k in range(50):
        pace.ran(k * 0.04, 0.04, 8, 200, 8)
        free.ran(k * 0.04, 0.04, 8, 100 if k % 2 else 3_000, 8)
    assert pace.limits(0, 0).overhead_tokens == OVERHEAD_TOKENS
    assert free.limits(0, 0).overhead_tokens == ADAPTIVE.max_tokens


def test_a_full_batch_is_bounded_by_its_number_of_inputs() -> None:
    """Of inputs as long as the longest so far; not by the tokens alone, which such inputs would never fill."""
    pace = Pace(Limits(8, 16_384, packed=True), 1)
    assert pace.full_s == 0.0
    for tokens in (4, 8, 16, 8) * 5:
        pace.ran(0.0, COSTS.seconds(tokens), 4, tokens, 4)
    assert pace.full_s == pytest.approx(COSTS.seconds(8 * 4), rel=0.05)
    for tokens in (4_000, 40_000):
        pace.ran(0.0, COSTS.seconds(tokens), 1, tokens, 1)
    assert pace.full_s == pytest.approx(COSTS.seconds(16_384), rel=0.1)
