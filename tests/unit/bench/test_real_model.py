"""Shares of a served model in the offline rates of the same model."""

from __future__ import annotations

import pytest

from bench.limit import Limit
from bench.real_model import ServedTexts, with_shares

LIMIT = Limit({"a": 1.0}, {"a, tuned": 0.8}, {"a, 2 at once": 0.5}, 2, (10, 30, 20, 40))


def test_shares_are_of_the_tokens_of_the_window() -> None:
    """A rate of 30 tokens/s is a share of 40 tokens/s offline, of the tuned rate, and of that of concurrent batches."""
    row = with_shares(LIMIT, ServedTexts("real", {"clients": 64}, {"p50_ms": 10.0}, 1.0, 1, 2, pool=4))
    shares = [row.figures[f"share_of_{name}"] for name in ("limit", "tuned", "side_by_side")]
    assert shares == pytest.approx([0.75, 0.6, 0.375])


def test_a_request_of_many_texts_does_not_repeat_the_pool() -> None:
    """Without a pool, the mean is over all its texts: 25 tokens here, not 20 as with a pool of three."""
    of_all = ServedTexts("one-request", {}, {"p50_ms": 10.0}, 1.0, 0, 4, pool=None)
    assert with_shares(LIMIT, of_all).figures["share_of_limit"] == pytest.approx(25 / 40)
