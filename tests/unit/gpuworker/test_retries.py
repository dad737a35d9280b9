"""What becomes of an entry whose run began and did not end."""

from __future__ import annotations

import pytest

from gpuworker.retries import Retry, retry


@pytest.mark.parametrize(
    ("attempts", "decision"),
    [(0, Retry.TOGETHER), (1, Retry.ALONE), (2, Retry.ALONE), (3, Retry.GIVE_UP), (4, Retry.GIVE_UP)],
)
def test_of_three_runs_the_first_is_shared(attempts: int, decision: Retry) -> None:
    """The first run is in company, those after it alone, and after the last there is no other."""
    assert retry(attempts, 3) is decision


def test_a_single_attempt_is_all_there_is() -> None:
    """With one attempt allowed, an entry that died once is given up."""
    assert (retry(0, 1), retry(1, 1)) == (Retry.TOGETHER, Retry.GIVE_UP)
