"""Which of many equal log lines are written."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shared.process.log_limit import MAX_KINDS, OTHERS, LogLimit, Repeats

INTERVAL_S = 10.0


@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, "report"]), st.floats(0, 5)), max_size=60))
def test_each_line_is_written_or_counted(steps: list[tuple[int | str, float]]) -> None:
    """The first of a kind at once; a further one only after an interval in which none came; all others are counted."""
    limit, now = LogLimit(INTERVAL_S), 0.0
    written: dict[int | str, list[float]] = {}
    counted: dict[object, int] = {}
    seen: dict[int | str, int] = {}
    for kind, pause_s in steps:
        now += pause_s
        if kind == "report":
            for each in limit.take_repeats(now):
                counted[each.kind] = counted.get(each.kind, 0) + each.num_lines
            continue
        seen[kind] = seen.get(kind, 0) + 1
        if limit.admit(kind, now):
            written.setdefault(kind, []).append(now)
    for each in limit.take_repeats(now):
        counted[each.kind] = counted.get(each.kind, 0) + each.num_lines
    assert {kind: len(times) + counted.get(kind, 0) for kind, times in written.items()} == seen
    for times in written.values():
        assert all(later - earlier >= INTERVAL_S for earlier, later in pairwise(times))


def test_a_report_says_how_many_lines_followed_and_in_which_time() -> None:
    """And it counts from zero: a kind of which no further line came is in no further report."""
    limit = LogLimit(INTERVAL_S)
    assert [limit.admit("a", now) for now in (0.0, 1.0, 2.0)] == [True, False, False]
    assert limit.admit("b", 3.0)
    assert limit.take_repeats(8.0) == [Repeats("a", 2, 8.0)]
    assert not limit.admit("a", 17.0)
    assert limit.take_repeats(18.0) == [Repeats("a", 1, 10.0)]
    assert limit.take_repeats(40.0) == []
    assert limit.admit("a", 41.0)


def test_the_number_of_kinds_is_bounded() -> None:
    """Lines of kinds beyond the bound are counted together; when a kind ends, there is room for another."""
    limit = LogLimit(INTERVAL_S)
    assert all(limit.admit(kind, 0.0) for kind in range(MAX_KINDS))
    assert not any(limit.admit(kind, 1.0) for kind in range(MAX_KINDS, 10 * MAX_KINDS))
    assert not limit.admit(0, 2.0)
    assert set(limit.take_repeats(3.0)) == {Repeats(0, 1, 3.0), Repeats(OTHERS, 9 * MAX_KINDS, 2.0)}
    assert limit.admit("later", 10.0)
