"""The judgement over a history finds what is wrong with it."""

from __future__ import annotations

from tests.chaos.history import FOREIGN, LATE_S, OK, RESET, Call, judge

GOOD = Call("a", 1.0, 10.0, 10.5, OK)


def test_a_good_history_has_nothing_to_tell() -> None:
    """All are answered in time with their own vector."""
    verdict = judge([GOOD, GOOD])
    assert (verdict.calls, verdict.answered, verdict.lost, verdict.misrouted, verdict.late) == (2, 2, 0, 0, 0)
    assert (verdict.slowest_s, dict(verdict.others)) == (0.5, {})


def test_each_fault_is_found() -> None:
    """Another's vector, a broken connection, an error, and an answer past its deadline."""
    calls = [GOOD, Call("b", 1.0, 0.0, 0.1, FOREIGN), Call("c", 1.0, 0.0, 0.1, RESET)]
    calls += [Call("d", 1.0, 0.0, 1.0, "504 deadline_exceeded"), Call("e", 1.0, 0.0, 1.1 + LATE_S, OK)]
    verdict = judge(calls)
    assert (verdict.calls, verdict.answered, verdict.lost, verdict.misrouted, verdict.late) == (5, 2, 3, 1, 1)
    assert dict(verdict.others) == {FOREIGN: 1, RESET: 1, "504 deadline_exceeded": 1}
