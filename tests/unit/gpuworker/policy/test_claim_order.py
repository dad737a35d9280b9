"""From which shard a worker claims next."""

from __future__ import annotations

from gpuworker.policy.claim_order import MAX_PASSED_OVER, ClaimOrder


def order_of(*remaining: tuple[int, int]) -> ClaimOrder:
    """Returns the order after a claim from each shard that left this many entries of the two lanes."""
    order = ClaimOrder(len(remaining))
    for shard, left in enumerate(remaining):
        order.record_claim(shard, left, 0)
    return order


def test_the_fullest_of_shards_with_equal_tokens_is_first() -> None:
    """Interactive entries count; bulk counts between shards with the same number of these."""
    assert order_of((3, 0), (8, 0), (5, 99)).choose([0, 1, 2]) == 1
    assert order_of((3, 0), (8, 0), (5, 99)).choose([0, 2]) == 2
    assert order_of((3, 1), (3, 2)).choose([0, 1]) == 1


def test_a_shard_in_which_an_entry_arrived_is_first() -> None:
    """It was empty when it was last claimed from, and nothing is known of what is behind that entry."""
    order = order_of((100, 0), (0, 9))
    order.record_claim(0, (100, 0), 0)
    assert [order.choose([0, 1]) for _ in range(2)] == [0, 0], "bulk alone is not urgent"
    order.record_arrival(1)
    assert order.choose([0, 1]) == 1
    order.record_claim(1, (0, 9), 0)
    assert order.choose([0, 1]) == 0


def claims(order: ClaimOrder, left: list[tuple[int, int]], tokens: list[int], number: int) -> list[int]:
    """Returns from which shards the next claims are, each of which takes these tokens, and leaves as much as before."""
    chosen = []
    for _ in range(number):
        chosen.append(shard := order.choose(range(len(left))))
        order.record_claim(shard, left[shard], tokens[shard])
    return chosen


def test_shards_with_interactive_entries_get_as_many_tokens() -> None:
    """Those with fewer entries, too: their gateways expect their part of the rate."""
    left = [(100, 0), (1, 0), (2, 0)]
    chosen = claims(order_of(*left), left, [20, 10, 10], 25)
    assert [chosen.count(each) for each in range(3)] == [5, 10, 10]


def test_an_empty_shard_saves_nothing_up() -> None:
    """When it has entries again, both get as many tokens from then on."""
    order = order_of((100, 0), (0, 0))
    order.record_claim(0, (100, 0), 1_000)
    order.record_arrival(1)
    assert sorted(claims(order, [(100, 0), (100, 0)], [10, 10], 8)) == [0] * 4 + [1] * 4


def test_a_shard_that_fills_up_unseen_has_a_turn() -> None:
    """What is known of it may be old: no claim has looked at it since. Bulk alone goes behind interactive entries."""
    left = [(100, 0), (0, 9), (0, 0)]
    chosen = claims(order_of(*left), left, [9, 0, 0], 3 * (MAX_PASSED_OVER + 2))
    assert {0, 1, 2} == set(chosen[: MAX_PASSED_OVER + 2])
    assert chosen.count(0) > len(chosen) / 2


def test_a_turn_without_a_claim_is_none() -> None:
    """A shard whose turn came when no credit was left is as far behind as before."""
    order = order_of((100, 0), (1, 0))
    for _ in range(MAX_PASSED_OVER):
        assert order.choose([0, 1]) == 0
        assert order.choose([1]) == 1
    assert order.choose([0, 1]) == 1


def test_interactive_entries_of_another_shard_are_urgent() -> None:
    """Those of the shard itself go before its bulk anyway."""
    order = order_of((3, 0), (0, 9))
    assert [order.is_urgent_beside(each) for each in (0, 1)] == [False, True]


def test_bulk_waits_if_it_waits_in_any_shard() -> None:
    """Except in one whose Redis is away."""
    order = order_of((3, 0), (0, 1))
    waits = [order.bulk_waits]
    order.record_arrival(1)
    waits.append(order.bulk_waits)
    order.forget(1)
    waits.append(order.bulk_waits)
    assert waits == [True, True, False]
