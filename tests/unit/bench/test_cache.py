"""The frequency of each text in the benchmark of the cache."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.cache import draw_requests

BODIES = [b"%d" % i for i in range(1_000)]


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.3])
def test_the_ranks_follow_zipfs_law(exponent: float) -> None:
    """The text of rank 1 is requested r^s times as often as the text of rank r."""
    counts = Counter(draw_requests(BODIES, exponent, 400_000))
    for rank in (1, 3, 7):
        assert counts[BODIES[0]] / counts[BODIES[rank]] == pytest.approx((rank + 1) ** exponent, rel=0.1)


def test_the_same_requests_for_the_same_exponent() -> None:
    """Draws are deterministic, so rounds and machines are comparable."""
    assert draw_requests(BODIES, 1.0, 100) == draw_requests(BODIES, 1.0, 100) != draw_requests(BODIES, 1.3, 100)
