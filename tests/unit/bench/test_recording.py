"""The recording of the README: its lines appear when they were printed."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from bench.recording import Line, draw

LINES = [Line(0.0, "$ redbatch up"), Line(6.0, "up | worker-1 was ended <&>"), Line(18.0, "errors 0 of 662")]


def test_each_line_appears_at_its_time() -> None:
    """The share of the whole time, 18 s and a pause of 6 s, after which a line is visible."""
    svg = draw(LINES)
    ET.fromstring(svg)  # noqa: S314 - our own text, which is to be well-formed
    found = re.findall(r'line-(\d+)\)"><animate [^>]*keyTimes="0;([0-9.]+);[^>]*dur="24.0s"', svg)
    assert {int(line): float(share) for line, share in found} == {0: 0.0, 1: 0.25, 2: 0.75}


def test_a_reader_without_animation_sees_all_lines() -> None:
    """No line is hidden by anything but its animation."""
    svg = draw(LINES)
    assert "errors" in svg
    assert 'opacity="0"' not in svg
