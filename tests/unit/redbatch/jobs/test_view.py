"""One job as text."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from redbatch.jobs.view import as_text
from shared.jobs import Job
from shared.keys import BULK
from shared.messages import EMBED, PREDICT


@pytest.mark.parametrize(("op", "shown"), [(EMBED, True), (PREDICT, False)])
def test_truncation_is_shown_of_texts_alone(op: str, shown: bool) -> None:
    """Inputs of a function are never cut."""
    out = StringIO()
    Console(file=out).print(as_text("q", Job("0" * 32, "done", "", BULK, 3, 3, 0, 1, 0, 0, 0, op=op), []))
    assert ("truncated inputs" in out.getvalue()) == shown
