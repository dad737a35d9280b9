"""The limits of a batch."""

from __future__ import annotations

import pytest

from gpuworker.policy.limits import Limits, max_runner_tokens


@pytest.mark.parametrize(
    ("total_tokens", "runners", "tokens"),
    [(100, 2, 256), (960, 2, 480), (3_000, 2, 512), (960, 3, 320), (600, 1, 300), (10_000, 1, 512)],
)
def test_a_batch_takes_a_runners_share(total_tokens: int, runners: int, tokens: int) -> None:
    """Half for one runner; but not too little for a batch's fixed cost, nor more than the limit."""
    assert max_runner_tokens(total_tokens, runners, Limits(64, 512, overhead_tokens=32.0)) == tokens
