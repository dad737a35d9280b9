"""Which of many equal events are logged."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpuworker.policy.log_limit import MAX_KEYS, LogLimit


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5)), max_size=60))
def test_each_event_is_logged_or_counted(events: list[tuple[int, float]]) -> None:
    """The first of a kind at once, later ones at most once in an interval, and none is lost from the counts."""
    limit, now = LogLimit(10.0), 0.0
    logged: dict[int, list[float]] = {}
    counted: dict[int, int] = {}
    for key, pause in events:
        now += pause
        suppressed = limit.admit(key, now)
        if suppressed is not None:
            logged.setdefault(key, []).append(now)
            counted[key] = counted.get(key, 0) + suppressed + 1
    for key, times in logged.items():
        assert all(later - earlier >= 10.0 for earlier, later in pairwise(times))
        seen = [each for each, _ in events].count(key)
        assert counted[key] <= seen
    assert set(logged) == {key for key, _ in events}


def test_the_number_of_kinds_is_bounded() -> None:
    """The one that was logged longest ago is forgotten: it is logged again."""
    limit = LogLimit(10.0)
    for key in range(MAX_KEYS + 1):
        assert limit.admit(key, 0.0) == 0
    assert limit.admit(MAX_KEYS, 1.0) is None
    assert limit.admit(0, 1.0) == 0
