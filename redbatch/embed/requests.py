"""Embeds the texts of slices in requests to /embed, for API keys whose scope allows no jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import httpx
import numpy as np
from numpy.typing import NDArray

from redbatch.embed.gateway_client import GatewayClient, error_of
from redbatch.embed.session import DoneCallback, Embedded

BATCH_TEXTS = 128
BATCH_CHARS = 250_000
"""Maximum characters of a request with several texts: with four bytes for each, it is below `max_body_bytes`."""

TIMEOUT_MS = 300_000
"""Maximum time for an answer: in the bulk lane, requests wait while interactive ones need the workers."""

EXTRA_TIMEOUT_S = 30.0
BAD_REQUEST, TOO_LARGE = httpx.codes.BAD_REQUEST, httpx.codes.REQUEST_ENTITY_TOO_LARGE
INPUT_STATUSES = (BAD_REQUEST, TOO_LARGE, httpx.codes.INTERNAL_SERVER_ERROR)
"""Statuses of a request of which one input may be at fault."""


class Batch(NamedTuple):
    """The vectors of a request, None for a text that failed, the errors of such texts, and how many were truncated."""

    vectors: list[NDArray[np.float32] | None]
    errors: dict[int, str]
    num_truncated: int = 0


class RequestEmbedder:
    """Embeds texts in requests of the bulk lane.

    Args:
        client: of the gateway.
        fields: options of every request, such as `prompt_name`.
        max_in_flight: maximum number of requests in flight.
    """

    def __init__(self, client: GatewayClient, fields: Mapping[str, object], max_in_flight: int) -> None:
        self._client = client
        self._fields = fields
        self._slots = asyncio.Semaphore(max_in_flight)

    async def embed(self, _number: int, texts: Sequence[str], on_done: DoneCallback) -> Embedded:
        """Returns the vectors of texts. Raises RequestRefusedError, or an ExceptionGroup of these."""
        num_done = 0

        async def embed_batch(batch: Sequence[str]) -> Batch:
            nonlocal num_done
            async with self._slots:
                result = await self._embed_batch(batch)
            num_done += len(batch)
            on_done(num_done)
            return result

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(embed_batch(batch)) for batch in _batches(texts)]
        results = [task.result() for task in tasks]
        vectors = [vector for result in results for vector in result.vectors]
        dim = next((len(vector) for vector in vectors if vector is not None), 0)
        missing = np.full(dim, np.nan, dtype="<f4")
        rows = np.array([missing if vector is None else vector for vector in vectors], dtype="<f4")
        num_truncated = sum(result.num_truncated for result in results)
        return Embedded(rows.reshape(len(texts), dim), _merge_errors(results), num_truncated=num_truncated)

    async def _embed_batch(self, texts: Sequence[str]) -> Batch:
        """Returns the vectors of the texts of a request; if it fails, those of the texts that do not."""
        answer = await self._post(texts, "fail", INPUT_STATUSES)
        if answer.is_success:
            return _read(answer)
        answer = await self._post(texts, "null", (TOO_LARGE,))
        if answer.is_success:
            return _read(answer)
        if len(texts) == 1:
            code, message = error_of(answer)
            return Batch([None], {0: f"{code}: {message}"})
        middle = len(texts) // 2
        halves = [await self._embed_batch(half) for half in (texts[:middle], texts[middle:])]
        vectors = [vector for half in halves for vector in half.vectors]
        return Batch(vectors, _merge_errors(halves), sum(half.num_truncated for half in halves))

    async def _post(self, texts: Sequence[str], on_error: str, allowed: Sequence[int]) -> httpx.Response:
        body = {"texts": texts, "priority": "bulk", "timeout_ms": TIMEOUT_MS, "on_error": on_error, **self._fields}
        timeout_s = TIMEOUT_MS / 1000 + EXTRA_TIMEOUT_S
        return await self._client.request("POST", "/embed", json=body, allowed=allowed, timeout_s=timeout_s)


def _read(answer: httpx.Response) -> Batch:
    body = answer.json()
    vectors = [None if each is None else np.array(each, dtype="<f4") for each in body["embeddings"]]
    errors = {each["index"]: f"{each['code']}: {each['message']}" for each in body.get("errors", ())}
    return Batch(vectors, errors, len(body.get("truncated", ())))


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the texts of each request."""
    start = chars = 0
    for index, text in enumerate(texts):
        chars += len(text)
        if index > start and (index - start == BATCH_TEXTS or chars > BATCH_CHARS):
            yield texts[start:index]
            start, chars = index, len(text)
    yield texts[start:]


def _merge_errors(batches: Sequence[Batch]) -> dict[int, str]:
    """Returns the errors of consecutive batches by the index of the text."""
    errors: dict[int, str] = {}
    offset = 0
    for batch in batches:
        errors |= {offset + index: error for index, error in batch.errors.items()}
        offset += len(batch.vectors)
    return errors
