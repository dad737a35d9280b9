"""From which shard a worker claims next."""

from __future__ import annotations

from gpuworker.policy.claim_order import MAX_PASSED_OVER, ClaimOrder


def order_of(*remaining: tuple[int, int]) -> ClaimOrder:
    """Returns the order after a claim from each shard that left this many entries of the two lanes."""
    order = ClaimOrder(len(remaining))
    for shard, left in enumerate(remaining):
        order.record_claim(shard, left)
    return order


def test_the_fullest_of_shards_with_equal_turns_is_first() -> None:
    """Interactive entries count; bulk counts between shards with the same number of these."""
    assert order_of((3, 0), (8, 0), (5, 99)).choose([0, 1, 2]) == 1
    assert order_of((3, 0), (8, 0), (5, 99)).choose([0, 2]) == 2
    assert order_of((3, 1), (3, 2)).choose([0, 1]) == 1


def test_a_shard_in_which_an_entry_arrived_is_first() -> None:
    """It was empty when it was last claimed from, and nothing is known of what is behind that entry."""
    order = order_of((100, 0), (0, 9))
    order.record_claim(0, (100, 0))
    assert [order.choose([0, 1]) for _ in range(2)] == [0, 0], "bulk alone is not urgent"
    order.record_arrival(1)
    assert order.choose([0, 1]) == 1
    order.record_claim(1, (0, 9))
    assert order.choose([0, 1]) == 0


def claims(order: ClaimOrder, left: list[tuple[int, int]], number: int) -> list[int]:
    """Returns from which shards the next claims are, each of which leaves as much as there was."""
    chosen = []
    for _ in range(number):
        chosen.append(order.choose(range(len(left))))
        order.record_claim(chosen[-1], left[chosen[-1]])
    return chosen


def test_shards_with_interactive_entries_take_turns() -> None:
    """Those with fewer have as many turns: their gateways expect their part of the rate."""
    left = [(100, 0), (1, 0), (2, 0)]
    assert sorted(claims(order_of(*left), left, 9)) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_shard_that_fills_up_unseen_has_a_turn() -> None:
    """What is known of it may be old: no claim has looked at it since. Bulk alone goes behind interactive entries."""
    left = [(100, 0), (0, 9), (0, 0)]
    chosen = claims(order_of(*left), left, 3 * (MAX_PASSED_OVER + 2))
    assert {0, 1, 2} == set(chosen[: MAX_PASSED_OVER + 2])
    assert chosen.count(0) > len(chosen) / 2


def test_a_turn_without_a_claim_is_none() -> None:
    """A shard whose turn came when no credit was left is as far behind as before."""
    order = order_of((100, 0), (1, 0))
    assert order.choose([0, 1]) == 0
    assert order.choose([1]) == 1
    assert order.choose([0, 1]) == 1


def test_bulk_waits_if_it_waits_in_any_shard() -> None:
    """Except in one whose Redis is away."""
    order = order_of((3, 0), (0, 1))
    waits = [order.bulk_waits]
    order.record_arrival(1)
    waits.append(order.bulk_waits)
    order.forget(1)
    waits.append(order.bulk_waits)
    assert waits == [True, True, False]
