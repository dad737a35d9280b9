"""From which shard a worker claims next: of those with interactive entries, the one with the fewest tokens yet. Pure.

Gateways expect of each shard its part of the fleet's rate, however long the others are: if the fullest went first, one
tenant that fills its shard would delay all tenants of the others. What is known of a shard is what its last claim has
left there, and it may have filled up since. So each has its turn after a few claims from others at the latest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shared.keys import BULK, INTERACTIVE, LANES

MAX_PASSED_OVER = 4
"""After this many claims from other shards, a shard that could have been claimed from goes first."""


class ClaimOrder:
    """The entries that wait in each shard, as far as they are known, by their lanes."""

    def __init__(self, num_shards: int) -> None:
        self._remaining: list[Sequence[int]] = [(0,) * len(LANES)] * num_shards
        self._is_known = [False] * num_shards
        self._passed_over = [0] * num_shards
        self._tokens = [0] * num_shards

    @property
    def bulk_waits(self) -> bool:
        """Whether entries of bulk wait in any shard."""
        return any(remaining[BULK] > 0 for remaining in self._remaining)

    def is_urgent_beside(self, shard: int) -> bool:
        """Returns whether interactive entries wait in another shard: these go before bulk of this one."""
        return any(left[INTERACTIVE] > 0 for number, left in enumerate(self._remaining) if number != shard)

    def record_claim(self, shard: int, remaining: Sequence[int], tokens: int) -> None:
        """Records how many entries of each lane a claim has left in a shard, and the interactive tokens that it took.

        A shard where nothing interactive waits saves up no tokens for later.
        """
        self._remaining[shard] = remaining
        self._is_known[shard] = True
        self._passed_over[shard] = 0
        self._tokens[shard] += tokens
        waiting = [tokens for tokens, left in zip(self._tokens, self._remaining, strict=True) if left[INTERACTIVE] > 0]
        least = min(waiting, default=max(self._tokens))
        self._tokens = [max(each, least) for each in self._tokens]

    def record_arrival(self, shard: int) -> None:
        """Records that an entry has arrived in a shard that was empty: behind it may be any number of others."""
        self._is_known[shard] = False

    def forget(self, shard: int) -> None:
        """Forgets what waits in a shard: its Redis is away."""
        self._remaining[shard] = (0,) * len(LANES)

    def choose(self, candidates: Collection[int]) -> int:
        """Returns which of these shards is claimed from now. The others count as passed over."""
        first = max(candidates, key=self._rank)
        for shard in candidates:
            self._passed_over[shard] += shard != first
        return first

    def _rank(self, shard: int) -> tuple[bool, bool, int, bool, int, int]:
        is_unknown, remaining = not self._is_known[shard], self._remaining[shard]
        return (
            self._passed_over[shard] >= MAX_PASSED_OVER,
            is_unknown or remaining[INTERACTIVE] > 0,
            -self._tokens[shard],
            is_unknown,
            remaining[INTERACTIVE],
            remaining[BULK],
        )
