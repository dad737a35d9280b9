"""Durations as people read them."""

from __future__ import annotations

from redbatch.times import format_duration


def test_durations_are_readable() -> None:
    """Durations are in seconds, from one minute on in minutes and seconds; what took any time took more than 0 s."""
    durations = (0, 1e-5, 0.04, 0.23, 0.96, 1.2, 59.2, 60, 725)
    expected = ["0 s", "0.01 s", "0.04 s", "0.2 s", "1 s", "1 s", "59 s", "1 min 00 s", "12 min 05 s"]
    assert [format_duration(seconds) for seconds in durations] == expected
