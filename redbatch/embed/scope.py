"""Embeds the texts of slices as the scope of the API key allows: as jobs, or else in requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redbatch.embed.jobs import JobsForbiddenError
from redbatch.embed.readers import Content
from redbatch.embed.session import DoneCallback, Embedded, Embedder


class ScopedEmbedder:
    """Embeds texts as jobs, until the gateway refuses one because the scope of the API key allows none.

    Args:
        jobs: embeds as jobs.
        requests: embeds in requests.
        on_forbidden: is called once, before the first request.
    """

    def __init__(self, jobs: Embedder, requests: Embedder, on_forbidden: Callable[[], None]) -> None:
        self._jobs = jobs
        self._requests = requests
        self._on_forbidden = on_forbidden
        self._is_forbidden = False

    async def embed(self, number: int, contents: Sequence[Content], on_done: DoneCallback) -> Embedded:
        """Returns the vectors of a slice. Raises RequestRefusedError, or an ExceptionGroup of these."""
        try:
            return await self._jobs.embed(number, contents, on_done)
        except JobsForbiddenError:
            if not self._is_forbidden:
                self._is_forbidden = True
                self._on_forbidden()
        return await self._requests.embed(number, contents, on_done)
