"""HTTP client for the jobs of one gateway; it retries after errors that may be temporary."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx
import numpy as np
import orjson
from numpy.typing import NDArray

LONG_POLL_S = 1
REQUEST_TIMEOUT_S = 60.0
MAX_TRIES = 8
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 15.0
MAX_QUOTA_WAIT_S = 3_600.0
RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504)


class RequestRefusedError(Exception):
    """The gateway refuses the request, or keeps failing; the message says why."""


class JobState(NamedTuple):
    """Status and progress of a job, the errors of its first failed inputs by index, and its model revisions."""

    status: str
    done: int
    failed: int
    errors: dict[int, str]
    revisions: frozenset[str] = frozenset()

    @property
    def ended(self) -> bool:
        """Whether the job has ended, in any way."""
        return self.status not in ("queued", "running")


class JobClient:
    """Creates and reads jobs at one gateway.

    Args:
        client: has the URL of the gateway as its base URL, and the headers of every request.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def create(self, texts: Sequence[str], idempotency_key: str) -> str:
        """Creates a job, or finds the job with this idempotency key; returns its path. Raises RequestRefusedError."""
        body = b"".join([orjson.dumps(text, option=orjson.OPT_APPEND_NEWLINE) for text in texts])
        headers = {"content-type": "application/x-ndjson", "idempotency-key": idempotency_key}
        answer = await self._request("POST", "/jobs", content=body, headers=headers)
        path: str = answer.json()["status_url"]
        return path

    async def state(self, path: str) -> JobState | None:
        """Returns the state of a job, after up to LONG_POLL_S unless it has ended; None if the job no longer exists."""
        answer = await self._request("GET", path, params={"wait": LONG_POLL_S}, allow_missing=True)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        body = answer.json()
        revisions = frozenset(body.get("revisions", ()))
        return JobState(body["status"], body["done"], body["failed"], _errors(body["errors"]), revisions)

    async def vectors(self, path: str) -> NDArray[np.float32] | None:
        """Returns the vectors of an ended job, with NaN for failed inputs; None if they no longer exist."""
        answer = await self._request(
            "GET", f"{path}/result", headers={"accept": "application/x-npy"}, allow_missing=True
        )
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        vectors: NDArray[np.float32] = np.load(io.BytesIO(answer.content), allow_pickle=False)
        return vectors

    async def failures(self, path: str, state: JobState) -> dict[int, str]:
        """Returns the error of each failed input, by its index."""
        # In an expired job, inputs that never ran are not counted as failed.
        if len(state.errors) == state.failed and state.status != "expired":
            return state.errors
        errors: dict[int, str] = {}
        url: str | None = f"{path}/result"
        while url is not None:
            page: dict[str, Any] = (await self._request("GET", url)).json()
            errors |= _errors(page["errors"])
            url = page["next_url"]
        return errors

    async def _request(self, method: str, path: str, *, allow_missing: bool = False, **options: Any) -> httpx.Response:  # noqa: ANN401 - the options of httpx
        """Retries after a temporary error. Raises RequestRefusedError for a permanent one, or after MAX_TRIES."""
        pause_s, left = FIRST_PAUSE_S, MAX_TRIES
        while left:
            left -= 1
            try:
                answer = await self._client.request(method, path, timeout=REQUEST_TIMEOUT_S, **options)
            except httpx.TransportError as error:
                problem = f"{self._client.base_url}: {type(error).__name__} {error}".strip()
                wait_s = pause_s
            else:
                if answer.is_success or (allow_missing and answer.status_code == httpx.codes.NOT_FOUND):
                    return answer
                problem = _error_text(answer)
                if answer.status_code not in RETRY_STATUSES:
                    break
                wait_s = max(pause_s, float(answer.headers.get("retry-after", 0)))
                if answer.status_code == httpx.codes.TOO_MANY_REQUESTS and wait_s <= MAX_QUOTA_WAIT_S:
                    await asyncio.sleep(wait_s)  # an exceeded quota is not a failure: Retry-After says when it has room
                    left += 1
                    continue
            if left:
                await asyncio.sleep(min(wait_s, MAX_PAUSE_S))
                pause_s *= 2
        raise RequestRefusedError(problem)


def _errors(items: Sequence[dict[str, Any]]) -> dict[int, str]:
    return {each["index"]: f"{each['code']}: {each['message']}" for each in items}


def _error_text(answer: httpx.Response) -> str:
    """Returns the error in an answer, as text."""
    try:
        error = answer.json()["error"]
        return f"{answer.status_code} {error['code']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason_phrase}: {answer.text[:200]}"
