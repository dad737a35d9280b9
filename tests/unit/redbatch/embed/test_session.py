"""One run of `redbatch embed`: what counts as its progress."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from redbatch.embed.checkpoint import Checkpoint, TaskIdentity
from redbatch.embed.progress import EmbedProgress
from redbatch.embed.readers import TXT, Content, InputFile, InputRow
from redbatch.embed.session import DoneCallback, Embedded, Session


class Jobs:
    """An embedder of which each job has 60 texts done when it is first seen, and all 100 after that."""

    async def embed(self, _number: int, contents: Sequence[Content], on_done: DoneCallback) -> Embedded:
        """Returns vectors of texts."""
        on_done(60)
        on_done(100)
        return Embedded(np.zeros((len(contents), 2), dtype="<f4"), {})


def test_the_rate_leaves_out_what_jobs_did_before_a_resume(tmp_path: Path) -> None:
    """Texts that the job of an earlier run has done by now are finished, but not by this run."""
    source = tmp_path / "a.txt"
    source.write_text("text")
    task = TaskIdentity.of(InputFile(source, TXT, "text", "a.txt"), "http://gateway", None, 100, {})
    checkpoint = Checkpoint(tmp_path / "v.npy", task)
    checkpoint.open()
    checkpoint.record_job(0, "http://gateway/jobs/a")  # slice 1 has no job yet
    now = iter([0.0, *[1.0] * 5, 10.0])
    output = io.StringIO()
    shown = EmbedProgress(200, Console(file=output, width=100), lambda: next(now))
    session = Session(Jobs(), checkpoint, 1, shown.update, shown.skip)
    slices = ([InputRow(1, "text")] * 100 for _ in range(2))
    asyncio.run(session.run(slices))
    assert output.getvalue() == "200 of 200, 14 texts/s, 0 s left\n"
