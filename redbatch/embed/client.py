"""Asks a gateway for jobs, as any client would, and does not give up where it makes sense to ask again."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx
import numpy as np
import orjson
from numpy.typing import NDArray

WAIT_S = 1
ASK_S = 60.0
TRIES = 8
PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
LONGEST_QUOTA_S = 3_600.0
AGAIN = (408, 425, 429, 500, 502, 503, 504)


class RequestRefusedError(Exception):
    """The gateway does not do it; the message says why."""


class JobState(NamedTuple):
    """How far a job is, the revisions of the model that it has had, and of the first inputs that failed: why."""

    status: str
    done: int
    failed: int
    errors: dict[int, str]
    revisions: frozenset[str] = frozenset()

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.status not in ("queued", "running")


class JobClient:
    """Talks to one gateway.

    Args:
        client: with the gateway's URL and what is to be said with each request.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def make(self, texts: Sequence[str], idempotency: str) -> str:
        """Makes a job of some texts, or finds the one of that name; returns its path. Raises Refused."""
        body = b"".join([orjson.dumps(text, option=orjson.OPT_APPEND_NEWLINE) for text in texts])
        headers = {"content-type": "application/x-ndjson", "idempotency-key": idempotency}
        answer = await self._ask("POST", "/jobs", content=body, headers=headers)
        path: str = answer.json()["status_url"]
        return path

    async def state(self, path: str) -> JobState | None:
        """Returns how far a job is, a little later if it has not ended; None if it is not there any more."""
        answer = await self._ask("GET", path, params={"wait": WAIT_S}, missing=True)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        told = answer.json()
        revisions = frozenset(told.get("revisions", ()))
        return JobState(told["status"], told["done"], told["failed"], _errors(told["errors"]), revisions)

    async def vectors(self, path: str) -> NDArray[np.float32] | None:
        """Returns the vectors of a job that has ended: NaN for those that failed. None if they are gone."""
        answer = await self._ask("GET", f"{path}/result", headers={"accept": "application/x-npy"}, missing=True)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found: NDArray[np.float32] = np.load(io.BytesIO(answer.content), allow_pickle=False)
        return found

    async def failures(self, path: str, state: JobState) -> dict[int, str]:
        """Returns the index of each input that failed, and why."""
        if len(state.errors) == state.failed and state.status != "expired":  # what has not run has not failed
            return state.errors
        found: dict[int, str] = {}
        url: str | None = f"{path}/result"
        while url is not None:
            page: dict[str, Any] = (await self._ask("GET", url)).json()
            found |= _errors(page["errors"])
            url = page["next_url"]
        return found

    async def _ask(self, method: str, path: str, *, missing: bool = False, **options: Any) -> httpx.Response:  # noqa: ANN401 - whatever httpx takes
        """Asks again after an error that may pass. Raises Refused for one that will not, or does not."""
        pause_s, left = PAUSE_S, TRIES
        while left:
            left -= 1
            try:
                answer = await self._client.request(method, path, timeout=ASK_S, **options)
            except httpx.TransportError as error:
                problem = f"{self._client.base_url}: {type(error).__name__} {error}".strip()
                wait_s = pause_s
            else:
                if answer.is_success or (missing and answer.status_code == httpx.codes.NOT_FOUND):
                    return answer
                problem = _told(answer)
                if answer.status_code not in AGAIN:
                    break
                wait_s = max(pause_s, float(answer.headers.get("retry-after", 0)))
                if answer.status_code == httpx.codes.TOO_MANY_REQUESTS and wait_s <= LONGEST_QUOTA_S:
                    await asyncio.sleep(wait_s)  # a quota is nothing that fails: it says when it has room
                    left += 1
                    continue
            if left:
                await asyncio.sleep(min(wait_s, LONGEST_PAUSE_S))
                pause_s *= 2
        raise RequestRefusedError(problem)


def _errors(told: Sequence[dict[str, Any]]) -> dict[int, str]:
    return {each["index"]: f"{each['code']}: {each['message']}" for each in told}


def _told(answer: httpx.Response) -> str:
    """Returns what an answer says is wrong."""
    try:
        error = answer.json()["error"]
        return f"{answer.status_code} {error['code']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason_phrase}: {answer.text[:200]}"
