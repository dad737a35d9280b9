"""The progress that `redbatch embed` prints."""

from __future__ import annotations

import io
import re

from rich.console import Console

from redbatch.embed.progress import EmbedProgress


def test_the_rate_is_that_of_this_run() -> None:
    """Slices of an earlier run count as finished, wherever they stand, and not in texts per second or time left."""
    now = iter([0.0, 2.0, 4.0, 10.0])
    output = io.StringIO()
    shown = EmbedProgress(1_000, Console(file=output, width=100), lambda: next(now))
    shown.update(0, 50)
    shown.skip(1, 500)
    shown.update(0, 100)
    assert re.findall(r".+", output.getvalue()) == ["600 of 1,000, 10 texts/s, 40 s left"]
