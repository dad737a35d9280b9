"""Durations as people read them."""

from __future__ import annotations

from redbatch.times import format_age, format_duration


def test_durations_are_readable() -> None:
    """Durations are in seconds, from one minute on in minutes and seconds; what took any time took more than 0 s."""
    durations = (0, 1e-5, 0.04, 0.23, 0.96, 1.2, 59.2, 60, 725)
    expected = ["0 s", "0.01 s", "0.04 s", "0.2 s", "1 s", "1 s", "59 s", "1 min 00 s", "12 min 05 s"]
    assert [format_duration(seconds) for seconds in durations] == expected


def test_an_age_has_one_unit() -> None:
    """It never takes more than AGE_WIDTH columns, so that a table does not change while it gets older."""
    ages_s = (0, 0.4, 59.9, 60, 3_599, 3_600, 172_799, 172_800, 8.6e7)
    expected = ["0 s", "0 s", "59 s", "1 min", "59 min", "1 h", "47 h", "2 d", "995 d"]
    assert [format_age(seconds) for seconds in ages_s] == expected
