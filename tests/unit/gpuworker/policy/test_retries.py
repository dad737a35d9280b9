"""What becomes of an entry whose run began and did not end."""

from __future__ import annotations

import pytest

from gpuworker.policy.retries import Retry, keeps, retry


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


@pytest.mark.parametrize(
    ("owned", "begun", "answered", "kept"),
    [(True, False, False, True), (False, False, False, False), (False, True, False, True), (False, False, True, True)],
)
def test_what_is_gone_and_neither_runs_nor_has_its_answer_is_let_go(
    owned: bool, begun: bool, answered: bool, kept: bool
) -> None:
    """What runs, runs to its end, and an answer is committed: the first one counts."""
    assert keeps(owned=owned, begun=begun, answered=answered) is kept
