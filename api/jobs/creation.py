"""Reads what a client asks to be done later, and makes a job of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from api.dialects.request import (
    MODEL_HEADER,
    PRIORITY_HEADER,
    invalid_body_error,
    parse_lane,
    texts_of,
    too_many_inputs_error,
)
from api.http.body import BodyLimits, BodyUnreadError, read_body
from api.http.handler import yield_as_long
from api.http.protocol import QUEUE
from api.jobs.inputs import JobInputs, checked
from api.jobs.ndjson import NdjsonReader
from api.jobs.schema import LINES, JobBody
from api.jobs.upload import JobRequest, JobUpload
from shared.errors import (
    BodyTimeoutError,
    BodyTooLargeError,
    InvalidRequestError,
    RedbatchError,
    RedisUnreachableError,
    TooManyBodiesError,
)
from shared.keys import BULK

if TYPE_CHECKING:
    from fastapi import Request

    from api.queues import ServedQueue
    from api.settings import GatewaySettings
    from api.state import State
    from api.tenants import Tenant

IDEMPOTENCY_HEADER = "idempotency-key"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
MAX_UPLOADS = 64
"""So many bodies of lines come in at a time: each has up to a portion in memory."""

UPLOADS_RETRY_S = 1.0
PART = 1_024
"""Texts that are made entries of at a time: it leaves the event loop to others in between."""


async def take(request: Request, state: State, tenant: Tenant) -> tuple[ServedQueue, str]:
    """Returns the queue and the id of the job that a request asks for.

    Raises:
        BodyUnreadError: its body was not read to the end.
        RedbatchError: it is malformed, too large, or cannot be taken now.
    """
    headers = {name.lower(): value for name, value in request.headers.items()}
    key = headers.get(IDEMPOTENCY_HEADER, "")
    if key and not _KEY.fullmatch(key):
        raise BodyUnreadError(InvalidRequestError("Idempotency-Key: send up to 255 visible ASCII characters."))
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in LINES:
        return await _take_lines(request, state, headers, tenant, key)
    body = await _read(request, state, headers)
    texts = _texts_of(body, state.settings)
    lane = parse_lane(body.priority or headers.get(PRIORITY_HEADER), BULK)
    queue = _queue_of(request, state, body.model or headers.get(MODEL_HEADER))
    upload = JobUpload(queue.job_store, state.settings, _wanted(queue, tenant, lane, key, state.settings))
    return queue, await _finish(upload, _parts(texts, state.settings.max_input_chars), queue)


async def _take_lines(
    request: Request, state: State, headers: Mapping[str, str], tenant: Tenant, key: str
) -> tuple[ServedQueue, str]:
    settings = state.settings
    if state.uploads >= MAX_UPLOADS:
        full = TooManyBodiesError("Too many jobs come in: try again soon.", retry_after_s=UPLOADS_RETRY_S)
        raise BodyUnreadError(full)
    state.uploads += 1
    try:
        lane = parse_lane(headers.get(PRIORITY_HEADER), BULK)
        queue = _queue_of(request, state, headers.get(MODEL_HEADER))
        upload = JobUpload(queue.job_store, settings, _wanted(queue, tenant, lane, key, settings))
        lines = NdjsonReader(settings.max_job_inputs, settings.max_input_chars)
        return queue, await _finish(upload, _texts_in(request, headers, lines, settings), queue)
    except RedbatchError as error:
        raise BodyUnreadError(error) from None
    finally:
        state.uploads -= 1


def _wanted(queue: ServedQueue, tenant: Tenant, lane: int, key: str, settings: GatewaySettings) -> JobRequest:
    limits = queue.dispatcher.monitor.limits(tenant, settings.job_timeout_s)
    return JobRequest(tenant.name, lane, key, limits)


async def _finish(upload: JobUpload, given: AsyncIterator[list[JobInputs]], queue: ServedQueue) -> str:
    try:
        async for some in given:
            queue.check_memory()
            await upload.add(some)
        spans = queue.dispatcher.spans
        with nullcontext("") if spans is None else spans.job(upload.lane) as traceparent:
            return await upload.make(queue.workers(), traceparent)
    except BaseException:
        await upload.forget()
        raise


def _queue_of(request: Request, state: State, model: str | None) -> ServedQueue:
    """Returns the queue of a model. No worker need live now; Redis has to. Raises Unavailable, or ModelNotFound."""
    queue = state.queues.of_model(model)
    request.scope["state"][QUEUE] = queue.name
    cluster = queue.dispatcher.monitor.cluster()
    if cluster.redis_down_s > 0:
        raise RedisUnreachableError("Redis is out of reach: try again.", retry_after_s=1.0)
    return queue


async def _read(request: Request, state: State, headers: Mapping[str, str]) -> JobBody:
    settings = state.settings
    pieces = await read_body(
        request, headers, BodyLimits(settings.max_v1_body_bytes, settings.body_timeout_s, state.body_budget)
    )
    size = sum(map(len, pieces))
    try:
        async with state.parse_lock, yield_as_long():
            return JobBody.model_validate_json(b"".join(pieces))
    except ValidationError as error:
        raise invalid_body_error(error, ' Send {"texts": ["...", ...]}.') from None
    finally:
        state.body_budget.release(size)


def _texts_of(body: JobBody, settings: GatewaySettings) -> list[str]:
    texts = texts_of(body.text, body.texts)
    if len(texts) > settings.max_job_inputs:
        raise too_many_inputs_error(len(texts), settings.max_job_inputs)
    return texts


async def _parts(texts: list[str], max_chars: int) -> AsyncIterator[list[JobInputs]]:
    for start in range(0, len(texts), PART):
        yield [checked(text, max_chars) for text in texts[start : start + PART]]
        await asyncio.sleep(0)


async def _texts_in(
    request: Request, headers: Mapping[str, str], lines: NdjsonReader, settings: GatewaySettings
) -> AsyncIterator[list[JobInputs]]:
    """Yields the texts of a body of lines as they come. Its sender may take long, but not be silent for long."""
    most = settings.max_job_body_bytes
    announced = headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > most:
        raise _too_large(most)
    size, more = 0, True
    while more:
        try:
            async with asyncio.timeout(settings.body_timeout_s):
                message = await request.receive()
        except TimeoutError:
            raise BodyTimeoutError(f"Nothing came for {settings.body_timeout_s:g} s: send on.") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece, more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > most:
            raise _too_large(most)
        yield lines.feed(piece)
    yield lines.end()


def _too_large(most: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body is over the limit of {most} bytes: make several jobs of it.")
