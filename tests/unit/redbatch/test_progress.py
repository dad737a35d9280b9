"""What all progress displays share."""

from __future__ import annotations

from redbatch.progress import as_time


def test_durations_read_as_people_say_them() -> None:
    """Minutes from one minute on."""
    assert [as_time(seconds) for seconds in (59.2, 60, 725)] == ["59 s", "1 min 00 s", "12 min 05 s"]
