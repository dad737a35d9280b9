"""Which shard a request goes to."""

from __future__ import annotations

from collections import Counter

import pytest

from api.dispatch.shard_choice import less_busy, rendezvous_order

KEYS = [f"tenant-{i}" for i in range(3_000)]


@pytest.mark.parametrize("num_shards", [1, 2, 3, 8])
def test_keys_are_spread_over_all_shards(num_shards: int) -> None:
    """Each shard is the first for about as many, and each key has an order of all."""
    orders = [rendezvous_order(each, num_shards) for each in KEYS]
    assert all(sorted(each) == list(range(num_shards)) for each in orders)
    share = len(KEYS) / num_shards
    assert all(0.8 * share <= number <= 1.2 * share for number in Counter(each[0] for each in orders).values())


def test_a_further_shard_moves_few_keys() -> None:
    """Those that prefer it; all others stay where they are."""
    moved = [each for each in KEYS if rendezvous_order(each, 4)[0] != rendezvous_order(each, 3)[0]]
    assert all(rendezvous_order(each, 4)[0] == 3 for each in moved)
    assert 0.2 * len(KEYS) <= len(moved) <= 0.3 * len(KEYS)


def test_the_less_busy_of_two_is_chosen() -> None:
    """The busiest of several never is, the others are with equal odds, and equal ones too."""
    draws = [i / 6_000 for i in range(6_000)]
    chosen = Counter(less_busy([0, 2, 3], [5, 0, 7, 1], each) for each in draws)
    assert chosen == {3: 4_000, 0: 2_000}
    assert Counter(less_busy([0, 1, 2], [0, 0, 0], each) for each in draws) == {0: 2_000, 1: 2_000, 2: 2_000}
    assert less_busy([1], [9, 9], 0.5) == 1
