"""The hours of a report."""

from __future__ import annotations

import pytest

from shared.usage_hours import UsageRange, name_of_day, name_of_hour, parse_range

NOW_S = 1_795_730_400 + 1_800  # 2026-11-26T22:30:00Z
HOUR = 1_795_730_400 // 3_600
KEPT = 960


def test_the_default_is_the_last_day_with_the_present_hour() -> None:
    """24 hours, of which the last has not ended."""
    found = parse_range(None, None, NOW_S, KEPT)
    assert found == UsageRange(HOUR - 23, HOUR + 1)
    assert found.names == ("2026-11-25T23:00:00Z", "2026-11-26T23:00:00Z")


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("2026-11-26", None, (HOUR - 22, HOUR + 1)),
        ("2026-11-26T14", "2026-11-26T16", (HOUR - 8, HOUR - 6)),
        ("2026-11-26T14:59:59Z", "2026-11-26T15:00:01+00:00", (HOUR - 8, HOUR - 6)),  # whole hours
        ("2026-11-20", "2030-01-01", (HOUR - 22 - 6 * 24, HOUR + 1)),  # nothing is counted in the future
        ("2020-01-01", "2026-11-26T22:00", (HOUR - KEPT, HOUR)),  # what is no longer kept
        ("2020-01-01", "2020-01-02", (HOUR - KEPT, HOUR - KEPT)),
    ],
)
def test_times_are_whole_hours_that_exist(since: str, until: str | None, expected: tuple[int, int]) -> None:
    """The first is rounded down, the last up."""
    assert tuple(parse_range(since, until, NOW_S, KEPT)) == expected


@pytest.mark.parametrize(
    ("since", "until", "message"),
    [
        ("yesterday", None, "from: send a time in UTC"),
        ("2026-02-30", None, "from: send a time in UTC"),
        (None, "1795730400", "to: send a time in UTC"),
        ("2026-11-26T14:00:00+02:00", None, "from: send a time in UTC"),
        ("2026-11-26", "2026-11-26", "to: it must be after `from`."),
    ],
)
def test_other_times_are_refused(since: str | None, until: str | None, message: str) -> None:
    """The message says which one, and what to write."""
    with pytest.raises(ValueError, match=message):
        parse_range(since, until, NOW_S, KEPT)


def test_an_hour_has_a_name_and_a_day() -> None:
    """As ISO 8601 has them."""
    assert name_of_hour(HOUR) == "2026-11-26T22:00:00Z"
    assert name_of_day(HOUR) == "2026-11-26"
