"""The cache's benchmark: how often each text is asked for."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.cache import draw_requests

BODIES = [b"%d" % i for i in range(1_000)]


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.3])
def test_the_ranks_follow_zipfs_law(exponent: float) -> None:
    """The first is asked for twice to the power of s as often as the second, and so on."""
    counts = Counter(draw_requests(BODIES, exponent, 400_000))
    for rank in (1, 3, 7):
        assert counts[BODIES[0]] / counts[BODIES[rank]] == pytest.approx((rank + 1) ** exponent, rel=0.1)


def test_the_same_requests_for_the_same_exponent() -> None:
    """Rounds and machines can be compared."""
    assert draw_requests(BODIES, 1.0, 100) == draw_requests(BODIES, 1.0, 100) != draw_requests(BODIES, 1.3, 100)
