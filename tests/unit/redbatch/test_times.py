"""Durations as people read them."""

from __future__ import annotations

from redbatch.times import format_duration


def test_durations_are_readable() -> None:
    """Durations are in seconds, and from one minute on in minutes and seconds."""
    assert [format_duration(seconds) for seconds in (59.2, 60, 725)] == ["59 s", "1 min 00 s", "12 min 05 s"]
