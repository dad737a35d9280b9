"""Brings the slices of a file to a gateway, a few at a time, and their vectors back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from redbatch.embed.checkpoint import Checkpoint
from redbatch.embed.client import JobClient, JobState, RequestRefusedError
from redbatch.embed.readers import InputRow

LOST_TRIES = 5
"""A job that is not there any more, as after Redis has lost its data, is made again."""

ProgressCallback = Callable[[int, int], None]
"""Told the number of a slice, and how many of its rows are done."""


def slices_of(rows: Iterator[InputRow], size: int) -> Iterator[list[InputRow]]:
    """Yields the rows in slices."""
    while part := list(islice(rows, size)):
        yield part


class Session:
    """One run.

    Args:
        client: asks the gateway.
        parts: keep what is done.
        in_flight: how many slices are on their way at a time.
        told: hears how far each is.
    """

    def __init__(self, client: JobClient, parts: Checkpoint, in_flight: int, told: ProgressCallback) -> None:
        self._client = client
        self._parts = parts
        self._in_flight = in_flight
        self._told = told

    async def run(self, slices: Iterator[list[InputRow]]) -> None:
        """Does all slices that are not done. Raises Refused: what is done is kept."""
        numbered = enumerate(slices)

        async def work() -> None:
            for number, rows in numbered:
                if self._parts.has(number):
                    self._told(number, len(rows))
                else:
                    await self._do(number, rows)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._in_flight):
                group.create_task(work())

    async def _do(self, number: int, rows: Sequence[InputRow]) -> None:
        texts = [row.text for row in rows if row.text is not None]
        faults = {index: row.fault for index, row in enumerate(rows) if row.text is None}
        if not texts:
            self._parts.keep(number, np.empty((len(rows), 0), dtype="<f4"), faults)
            self._told(number, len(rows))
            return
        found, failed, revisions = await self._embedded(number, texts, len(rows) - len(texts))
        whole = np.full((len(rows), found.shape[1]), np.nan, dtype="<f4")
        places = [index for index, row in enumerate(rows) if row.text is not None]
        whole[places] = found
        faults |= {places[index]: why for index, why in failed.items()}
        if whole.shape[1] and not set(np.flatnonzero(np.isnan(whole).any(axis=1)).tolist()) <= set(faults):
            raise RequestRefusedError("A job has given no vector for a text, and does not say why.")
        self._parts.keep(number, whole, faults, revisions)
        self._told(number, len(rows))

    async def _embedded(
        self, number: int, texts: Sequence[str], faults: int
    ) -> tuple[NDArray[np.float32], dict[int, str], frozenset[str]]:
        """Returns the vectors of some texts, by index why some have none, and the revisions of the model."""
        for again in range(LOST_TRIES):
            path = await self._client.make(texts, f"{self._parts.name(number)}-{again}")
            state = await self._ended(path, number, faults)
            vectors = None if state is None or state.status == "cancelled" else await self._client.vectors(path)
            if state is not None and vectors is not None:
                return vectors, await self._client.failures(path, state), state.revisions
        raise RequestRefusedError("The job was lost again and again: does Redis keep its data?")

    async def _ended(self, path: str, number: int, faults: int) -> JobState | None:
        while (state := await self._client.state(path)) is not None:
            self._told(number, state.done + state.failed + faults)
            if state.ended:
                return state
        return None
