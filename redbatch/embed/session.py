"""Sends the slices of a file to a gateway as jobs, a few at a time, and stores their vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from redbatch.embed.checkpoint import Checkpoint
from redbatch.embed.client import JobClient, JobState, RequestRefusedError
from redbatch.embed.readers import InputRow

MAX_CREATIONS = 5
"""Maximum number of jobs for one slice: a lost job, for example after Redis lost its data, is created again."""

ProgressCallback = Callable[[int, int], None]
"""Receives the number of a slice, and the number of its finished rows."""


def slices_of(rows: Iterator[InputRow], size: int) -> Iterator[list[InputRow]]:
    """Yields the rows in slices of at most `size` rows."""
    while rows_of_slice := list(islice(rows, size)):
        yield rows_of_slice


class Session:
    """One run of `redbatch embed`.

    Args:
        client: the gateway.
        checkpoint: stores finished slices.
        max_in_flight: maximum number of slices in flight.
        on_progress: is called with the progress of each slice.
    """

    def __init__(
        self, client: JobClient, checkpoint: Checkpoint, max_in_flight: int, on_progress: ProgressCallback
    ) -> None:
        self._client = client
        self._checkpoint = checkpoint
        self._max_in_flight = max_in_flight
        self._on_progress = on_progress

    async def run(self, slices: Iterator[list[InputRow]]) -> None:
        """Embeds all slices that are not finished.

        Raises an ExceptionGroup of RequestRefusedError; finished slices stay stored.
        """
        numbered = enumerate(slices)

        async def embed_slices() -> None:
            for number, rows in numbered:
                if self._checkpoint.has(number):
                    self._on_progress(number, len(rows))
                else:
                    await self._embed_slice(number, rows)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._max_in_flight):
                group.create_task(embed_slices())

    async def _embed_slice(self, number: int, rows: Sequence[InputRow]) -> None:
        texts = [row.text for row in rows if row.text is not None]
        faults = {index: row.fault for index, row in enumerate(rows) if row.text is None}
        if not texts:
            self._checkpoint.save(number, np.empty((len(rows), 0), dtype="<f4"), faults)
            self._on_progress(number, len(rows))
            return
        vectors, errors, revisions = await self._embed_texts(number, texts, len(rows) - len(texts))
        all_rows = np.full((len(rows), vectors.shape[1]), np.nan, dtype="<f4")
        positions = [index for index, row in enumerate(rows) if row.text is not None]
        all_rows[positions] = vectors
        faults |= {positions[index]: error for index, error in errors.items()}
        if all_rows.shape[1] and not set(np.flatnonzero(np.isnan(all_rows).any(axis=1)).tolist()) <= set(faults):
            raise RequestRefusedError("A job has returned no vector for a text, and no error for it.")
        self._checkpoint.save(number, all_rows, faults, revisions)
        self._on_progress(number, len(rows))

    async def _embed_texts(
        self, number: int, texts: Sequence[str], num_faults: int
    ) -> tuple[NDArray[np.float32], dict[int, str], frozenset[str]]:
        """Returns the vectors of texts, the errors of failed ones by index, and the model revisions."""
        for creation in range(MAX_CREATIONS):
            path = await self._client.create(texts, f"{self._checkpoint.idempotency_key(number)}-{creation}")
            state = await self._wait_until_ended(path, number, num_faults)
            vectors = None if state is None or state.status == "cancelled" else await self._client.vectors(path)
            if state is not None and vectors is not None:
                return vectors, await self._client.failures(path, state), state.revisions
        raise RequestRefusedError(f"The job was lost {MAX_CREATIONS} times: check that Redis keeps its data.")

    async def _wait_until_ended(self, path: str, number: int, num_faults: int) -> JobState | None:
        while (state := await self._client.state(path)) is not None:
            self._on_progress(number, state.done + state.failed + num_faults)
            if state.ended:
                return state
        return None
