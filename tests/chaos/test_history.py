"""The verdict on a history counts every fault in it."""

from __future__ import annotations

from tests.chaos.history import FOREIGN, LATE_S, OK, RESET, Call, judge
from tests.chaos.scenario import all_correct

GOOD = Call("a", 1.0, 10.0, 10.5, OK)


def test_a_correct_history_has_no_faults() -> None:
    """The verdict is clean when all calls are answered in time with their vectors."""
    verdict = judge([GOOD, GOOD])
    assert (verdict.calls, verdict.answered, verdict.lost, verdict.misrouted, verdict.late) == (2, 2, 0, 0, 0)
    assert (verdict.slowest_s, dict(verdict.others)) == (0.5, {})


def test_each_fault_is_counted() -> None:
    """The vector of another text, a broken connection, an error and a late answer are counted by kind."""
    calls = [GOOD, Call("b", 1.0, 0.0, 0.1, FOREIGN), Call("c", 1.0, 0.0, 0.1, RESET)]
    calls += [Call("d", 1.0, 0.0, 1.0, "504 deadline_exceeded"), Call("e", 1.0, 0.0, 1.1 + LATE_S, OK)]
    verdict = judge(calls)
    assert (verdict.calls, verdict.answered, verdict.lost, verdict.misrouted, verdict.late) == (5, 2, 3, 1, 1)
    assert dict(verdict.others) == {FOREIGN: 1, RESET: 1, "504 deadline_exceeded": 1}


def test_without_calls_nothing_is_correct() -> None:
    """A load that has not run proves nothing."""
    assert all_correct(judge([GOOD]))
    assert not all_correct(judge([]))
