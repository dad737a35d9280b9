"""Embeds the texts of slices in requests, or scores their pairs, for API keys whose scope allows no jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import httpx
import numpy as np
from numpy.typing import NDArray

from redbatch.embed.gateway_client import GatewayClient, error_of
from redbatch.embed.readers import Content
from redbatch.embed.session import DoneCallback, Embedded

BATCH_TEXTS = 128
BATCH_CHARS = 250_000
"""Maximum characters of a request with several texts: with four bytes for each, it is below `max_body_bytes`."""

TIMEOUT_MS = 300_000
"""Maximum time for an answer: in the bulk lane, requests wait while interactive ones need the workers."""

EXTRA_TIMEOUT_S = 30.0
BAD_REQUEST, TOO_LARGE = httpx.codes.BAD_REQUEST, httpx.codes.REQUEST_ENTITY_TOO_LARGE


class Batch(NamedTuple):
    """The vectors of a request, None for a text that failed, the errors of such texts, and how many were truncated."""

    vectors: list[NDArray[np.float32] | None]
    errors: dict[int, str]
    num_truncated: int = 0


class RequestRoute(Protocol):
    """A route that computes a vector, or a score, for each content of a request.

    Attributes:
        path: of the route.
        input_errors: statuses and codes of a request of which one input may be at fault.
        is_partial: whether an answer may lack the inputs that fail.
    """

    path: str
    input_errors: Sequence[int | str]
    is_partial: bool

    def fields_of(self, contents: Sequence[Content], *, partial: bool) -> dict[str, object]:
        """Returns the fields of a body; if it is `partial`, the answer may lack the inputs that fail."""

    def read(self, answer: httpx.Response) -> Batch:
        """Returns the results in a good answer."""


class EmbedRoute(RequestRoute):
    """The route of the vectors of texts.

    Args:
        fields: options of every request, such as `prompt_name`.
    """

    path = "/embed"
    input_errors = (BAD_REQUEST, TOO_LARGE, httpx.codes.INTERNAL_SERVER_ERROR)
    is_partial = True

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields

    def fields_of(self, contents: Sequence[Content], *, partial: bool) -> dict[str, object]:
        """Returns the fields of a body."""
        return {"texts": contents, "on_error": "null" if partial else "fail", **self._fields}

    def read(self, answer: httpx.Response) -> Batch:
        """Returns the vectors in an answer."""
        body = answer.json()
        vectors = [None if each is None else np.array(each, dtype="<f4") for each in body["embeddings"]]
        errors = {each["index"]: f"{each['code']}: {each['message']}" for each in body.get("errors", ())}
        return Batch(vectors, errors, len(body.get("truncated", ())))


class RequestEmbedder:
    """Embeds texts, or scores pairs, in requests of the bulk lane.

    Args:
        client: of the gateway.
        route: of the requests.
        max_in_flight: maximum number of requests in flight.
    """

    def __init__(self, client: GatewayClient, route: RequestRoute, max_in_flight: int) -> None:
        self._client = client
        self._route = route
        self._slots = asyncio.Semaphore(max_in_flight)

    async def embed(self, _number: int, contents: Sequence[Content], on_done: DoneCallback) -> Embedded:
        """Returns the vectors of a slice. Raises RequestRefusedError, or an ExceptionGroup of these."""
        num_done = 0

        async def embed_batch(batch: Sequence[Content]) -> Batch:
            nonlocal num_done
            async with self._slots:
                result = await self._embed_batch(batch)
            num_done += len(batch)
            on_done(num_done)
            return result

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(embed_batch(batch)) for batch in _batches(contents)]
        results = [task.result() for task in tasks]
        vectors = [vector for result in results for vector in result.vectors]
        dim = next((len(vector) for vector in vectors if vector is not None), 0)
        missing = np.full(dim, np.nan, dtype="<f4")
        rows = np.array([missing if vector is None else vector for vector in vectors], dtype="<f4")
        num_truncated = sum(result.num_truncated for result in results)
        return Embedded(rows.reshape(len(contents), dim), _merge_errors(results), num_truncated=num_truncated)

    async def _embed_batch(self, contents: Sequence[Content]) -> Batch:
        """Returns the vectors of the inputs of a request; if it fails, those of the inputs that do not."""
        route = self._route
        answer = await self._post(contents, route.input_errors)
        if not answer.is_success and route.is_partial:
            answer = await self._post(contents, (TOO_LARGE,), partial=True)
        if answer.is_success:
            return route.read(answer)
        if len(contents) == 1:
            code, message = error_of(answer)
            return Batch([None], {0: f"{code}: {message}"})
        middle = len(contents) // 2
        halves = [await self._embed_batch(half) for half in (contents[:middle], contents[middle:])]
        vectors = [vector for half in halves for vector in half.vectors]
        return Batch(vectors, _merge_errors(halves), sum(half.num_truncated for half in halves))

    async def _post(
        self, contents: Sequence[Content], allowed: Sequence[int | str], *, partial: bool = False
    ) -> httpx.Response:
        fields = self._route.fields_of(contents, partial=partial)
        body = {**fields, "priority": "bulk", "timeout_ms": TIMEOUT_MS}
        timeout_s = TIMEOUT_MS / 1000 + EXTRA_TIMEOUT_S
        return await self._client.request("POST", self._route.path, json=body, allowed=allowed, timeout_s=timeout_s)


def _batches(contents: Sequence[Content]) -> Iterator[Sequence[Content]]:
    """Yields the inputs of each request."""
    start = chars = 0
    for index, content in enumerate(contents):
        size = len(content) if isinstance(content, str) else sum(map(len, content.values()))
        chars += size
        if index > start and (index - start == BATCH_TEXTS or chars > BATCH_CHARS):
            yield contents[start:index]
            start, chars = index, size
    yield contents[start:]


def _merge_errors(batches: Sequence[Batch]) -> dict[int, str]:
    """Returns the errors of consecutive batches by the index of the text."""
    errors: dict[int, str] = {}
    offset = 0
    for batch in batches:
        errors |= {offset + index: error for index, error in batch.errors.items()}
        offset += len(batch.vectors)
    return errors
