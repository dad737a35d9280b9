"""What happens to an entry whose run began and did not end."""

from __future__ import annotations

import pytest

from gpuworker.policy.retries import RetryDecision, decide_retry, should_keep


@pytest.mark.parametrize(
    ("attempts", "decision"),
    [
        (0, RetryDecision.BATCHED),
        (1, RetryDecision.ISOLATED),
        (2, RetryDecision.ISOLATED),
        (3, RetryDecision.GIVE_UP),
        (4, RetryDecision.GIVE_UP),
    ],
)
def test_of_three_runs_the_first_is_shared(attempts: int, decision: RetryDecision) -> None:
    """The first run is in a shared batch, those after it are isolated, and there is none after the last."""
    assert decide_retry(attempts, 3) is decision


def test_one_attempt_allows_no_retry() -> None:
    """With one attempt allowed, an entry that died once is given up."""
    assert (decide_retry(0, 1), decide_retry(1, 1)) == (RetryDecision.BATCHED, RetryDecision.GIVE_UP)


@pytest.mark.parametrize(
    ("owned", "started", "answered", "kept"),
    [(True, False, False, True), (False, False, False, False), (False, True, False, True), (False, False, True, True)],
)
def test_an_entry_is_dropped_if_not_owned_started_or_answered(
    owned: bool, started: bool, answered: bool, kept: bool
) -> None:
    """A started entry runs to its end, and an answer is committed: the first one counts."""
    assert should_keep(owned=owned, started=started, answered=answered) is kept
