"""Sends the slices of a file to a gateway, a few at a time, and stores their vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from redbatch.embed.checkpoint import Checkpoint
from redbatch.embed.gateway_client import RequestRefusedError
from redbatch.embed.readers import Content, InputRow

MAX_SLICE_CHARS = 2 * 2**20
"""Maximum characters of a slice of several texts: as JSON it is below the gateway's limits of a body."""

DoneCallback = Callable[[int], None]
"""Receives the number of texts of a slice that have ended."""

ProgressCallback = Callable[[int, int], None]
"""Receives the number of a slice, and the number of its finished rows."""


async def release_nothing() -> None:
    """Does nothing: the gateway keeps nothing of what was embedded."""


class Embedded(NamedTuple):
    """The vectors of texts, shape (texts, dim), NaN for failed ones; errors of these by index; model revisions.

    `num_truncated` texts were longer than the model takes, and were truncated. `release` deletes what the gateway keeps
    of them, once they are saved.
    """

    vectors: NDArray[np.float32]
    errors: dict[int, str]
    revisions: frozenset[str] = frozenset()
    num_truncated: int = 0
    release: Callable[[], Awaitable[None]] = release_nothing


class Embedder(Protocol):
    """One way to compute the vectors, or scores, of a slice: of texts, or of pairs of a query and a text."""

    async def embed(self, number: int, contents: Sequence[Content], on_done: DoneCallback) -> Embedded:
        """Returns the vectors of a slice. Raises RequestRefusedError."""


def slices_of(rows: Iterator[InputRow], size: int) -> Iterator[list[InputRow]]:
    """Yields the rows in slices of at most `size` rows and, unless it is a single row, MAX_SLICE_CHARS characters."""
    rows_of_slice: list[InputRow] = []
    chars = 0
    for row in rows:
        length = len(row.text or "") + len(row.query or "")
        if rows_of_slice and (len(rows_of_slice) == size or chars + length > MAX_SLICE_CHARS):
            yield rows_of_slice
            rows_of_slice, chars = [], 0
        rows_of_slice.append(row)
        chars += length
    if rows_of_slice:
        yield rows_of_slice


class Session:
    """One run of a command that computes a vector, or a score, for each row.

    Args:
        embedder: embeds the texts of a slice.
        checkpoint: stores finished slices.
        max_in_flight: maximum number of slices in flight.
        on_progress: is called with the progress of each slice.
        on_stored: is called for each slice that an earlier run has finished, or whose job it has created: with the rows
            that are finished when this run comes to the slice.
    """

    def __init__(
        self,
        embedder: Embedder,
        checkpoint: Checkpoint,
        max_in_flight: int,
        on_progress: ProgressCallback,
        on_stored: ProgressCallback,
    ) -> None:
        self._embedder = embedder
        self._checkpoint = checkpoint
        self._max_in_flight = max_in_flight
        self._on_progress = on_progress
        self._on_stored = on_stored

    async def run(self, slices: Iterator[list[InputRow]]) -> None:
        """Embeds all slices that are not finished.

        Raises an ExceptionGroup of RequestRefusedError; finished slices stay stored.
        """
        numbered = enumerate(slices)

        async def embed_slices() -> None:
            for number, rows in numbered:
                if self._checkpoint.has(number):
                    self._on_stored(number, len(rows))
                else:
                    await self._embed_slice(number, rows)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._max_in_flight):
                group.create_task(embed_slices())

    async def _embed_slice(self, number: int, rows: Sequence[InputRow]) -> None:
        contents = [row.content for row in rows if row.text is not None]
        faults = {index: row.fault for index, row in enumerate(rows) if row.text is None}
        if not contents:
            self._checkpoint.save(number, np.empty((len(rows), 0), dtype="<f4"), faults)
            self._on_progress(number, len(rows))
            return
        num_faults = len(faults)
        report = self._on_stored if self._checkpoint.has_job(number) else self._on_progress

        def on_done(done: int) -> None:
            nonlocal report
            report(number, done + num_faults)
            report = self._on_progress

        vectors, errors, revisions, num_truncated, release = await self._embedder.embed(number, contents, on_done)
        all_rows = np.full((len(rows), vectors.shape[1]), np.nan, dtype="<f4")
        positions = [index for index, row in enumerate(rows) if row.text is not None]
        all_rows[positions] = vectors
        faults |= {positions[index]: error for index, error in errors.items()}
        if all_rows.shape[1] and not set(np.flatnonzero(np.isnan(all_rows).any(axis=1)).tolist()) <= set(faults):
            raise RequestRefusedError("A job has returned no result for a text, and no error for it.")
        self._checkpoint.save(number, all_rows, faults, revisions, num_truncated)
        await release()
        self._on_progress(number, len(rows))
