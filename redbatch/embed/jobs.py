"""Embeds the texts of slices, or scores their pairs, as jobs of one gateway."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
import numpy as np
import orjson
from numpy.typing import NDArray

from redbatch.embed.checkpoint import Checkpoint
from redbatch.embed.gateway_client import NOT_FOUND, GatewayClient, RequestRefusedError, error_of
from redbatch.embed.readers import Content
from redbatch.embed.session import DoneCallback, Embedded

LONG_POLL_S = 1
FINAL_WAIT_S = 5.0
NOTHING_TO_RUN = "nothing_to_run"
"""Code of the refusal of a job of which no text can be embedded: each of its texts has failed."""

FORBIDDEN = "forbidden"
"""Code of the refusal if the scope of the API key allows no jobs."""

MAX_CREATIONS = 5
"""Maximum number of jobs for one slice: a lost job, for example after Redis lost its data, is created again."""


NO_FORM: Mapping[str, object] = MappingProxyType({})


class JobsForbiddenError(Exception):
    """The scope of the API key allows no jobs."""


class _NothingToRunError(Exception):
    """No text of a slice can be embedded."""


class JobState(NamedTuple):
    """Status and progress of a job, the errors of its first failed inputs by index, and its model revisions.

    `num_truncated` texts were truncated.
    """

    status: str
    done: int
    failed: int
    errors: dict[int, str]
    revisions: frozenset[str] = frozenset()
    num_truncated: int = 0

    @property
    def ended(self) -> bool:
        """Whether the job has ended, in any way."""
        return self.status not in ("queued", "running")


class JobEmbedder:
    """Embeds texts, or scores pairs, as jobs.

    Args:
        client: of the gateway.
        checkpoint: records the jobs.
        fields: options of every job, such as `prompt_name`.
        form: parameters of every download of results.
    """

    def __init__(
        self,
        client: GatewayClient,
        checkpoint: Checkpoint,
        fields: Mapping[str, object],
        form: Mapping[str, object] = NO_FORM,
    ) -> None:
        self._client = client
        self._checkpoint = checkpoint
        self._fields = fields
        self._form = form
        self._creating = asyncio.Lock()
        self._is_forbidden = False

    async def embed(self, number: int, contents: Sequence[Content], on_done: DoneCallback) -> Embedded:
        """Returns the vectors of a slice; the first call of `on_done` tells what is done already.

        Raises:
            JobsForbiddenError: the scope of the API key allows no jobs.
            RequestRefusedError: the gateway refuses for another reason, or keeps failing.
        """
        for creation in range(MAX_CREATIONS):
            try:
                path = await self._create(number, contents, f"{self._checkpoint.idempotency_key(number)}-{creation}")
            except _NothingToRunError as error:
                return Embedded(
                    np.empty((len(contents), 0), dtype="<f4"), dict.fromkeys(range(len(contents)), str(error))
                )
            state = await self._wait_until_ended(path, on_done)
            vectors = None if state is None or state.status in ("cancelled", "deleted") else await self._vectors(path)
            if state is not None and vectors is not None:
                failures = await self._failures(path, state)
                release = partial(self._delete, path)
                return Embedded(vectors, failures, state.revisions, state.num_truncated, release)
        raise RequestRefusedError(f"The job was lost {MAX_CREATIONS} times: check that Redis keeps its data.")

    async def _create(self, number: int, contents: Sequence[Content], idempotency_key: str) -> str:
        """Creates a job, or finds the job with this idempotency key; returns its path.

        If this call is cancelled, it waits for the answer for up to FINAL_WAIT_S, so that the job is on record.

        Raises:
            JobsForbiddenError: the scope of the API key allows no jobs.
            RequestRefusedError: the gateway refuses for another reason, or keeps failing.
        """
        async with self._creating:  # one at a time: only the first job is sent if jobs are forbidden
            if self._is_forbidden:
                raise JobsForbiddenError
            creation = asyncio.ensure_future(self._post(number, contents, idempotency_key))
            try:
                return await asyncio.shield(creation)
            except asyncio.CancelledError:
                await asyncio.wait([creation], timeout=FINAL_WAIT_S)
                if not creation.cancel():
                    creation.exception()  # read, or asyncio logs that it was not
                raise

    async def _post(self, number: int, contents: Sequence[Content], idempotency_key: str) -> str:
        headers = {"content-type": "application/x-ndjson", "idempotency-key": idempotency_key}
        lines = b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in contents)
        answer = await self._client.request(
            "POST", "/jobs", allowed=(NOTHING_TO_RUN, FORBIDDEN), content=lines, headers=headers, params=self._fields
        )
        if error_of(answer)[0] == FORBIDDEN:
            self._is_forbidden = True
            raise JobsForbiddenError
        if not answer.is_success:
            raise _NothingToRunError(": ".join(error_of(answer)))
        try:
            path = f"/jobs/{answer.json()['id']}"
        except (ValueError, LookupError, TypeError):
            raise self._client.refusal(answer) from None
        self._checkpoint.record_job(number, f"{self._client.url}{path}")
        return path

    async def _wait_until_ended(self, path: str, on_done: DoneCallback) -> JobState | None:
        wait_s = 0
        while (state := await self._state(path, wait_s)) is not None:
            on_done(state.done + state.failed)
            if state.ended:
                return state
            wait_s = LONG_POLL_S
        return None

    async def _state(self, path: str, wait_s: int) -> JobState | None:
        """Returns the state of a job, after up to `wait_s` unless it has ended; None if the job no longer exists."""
        answer = await self._client.request("GET", path, params={"wait": wait_s}, allowed=(NOT_FOUND,))
        if answer.status_code == NOT_FOUND:
            return None
        body = answer.json()
        revisions, num_truncated = frozenset(body.get("revisions", ())), body.get("truncated_inputs", 0)
        return JobState(body["status"], body["done"], body["failed"], _errors(body["errors"]), revisions, num_truncated)

    async def _vectors(self, path: str) -> NDArray[np.float32] | None:
        """Returns the vectors of an ended job, with NaN for failed inputs; None if they no longer exist."""
        headers = {"accept": "application/x-npy"}
        answer = await self._client.request(
            "GET", f"{path}/result", headers=headers, allowed=(NOT_FOUND,), params=self._form
        )
        if answer.status_code == NOT_FOUND:
            return None
        vectors: NDArray[np.float32] = np.load(io.BytesIO(answer.content), allow_pickle=False)
        return vectors

    async def _delete(self, path: str) -> None:
        """Deletes a job: its results would fill the tenant's part of Redis until they expire."""
        with suppress(RequestRefusedError):  # they expire, too
            await self._client.request("DELETE", path, allowed=range(400, 600))

    async def _failures(self, path: str, state: JobState) -> dict[int, str]:
        """Returns the error of each failed input, by its index."""
        # In an expired job, inputs that never ran are not counted as failed.
        if len(state.errors) == state.failed and state.status != "expired":
            return state.errors
        errors: dict[int, str] = {}
        url: str | None = ""
        while url is not None:
            # Only the query of `next_url`: its path begins with the prefix under which a proxy serves the gateway.
            params = httpx.URL(url).params
            page: dict[str, Any] = (await self._client.request("GET", f"{path}/result", params=params)).json()
            errors |= _errors(page["errors"])
            url = page["next_url"]
        return errors


def _errors(items: Sequence[dict[str, Any]]) -> dict[int, str]:
    return {each["index"]: f"{each['code']}: {each['message']}" for each in items}
