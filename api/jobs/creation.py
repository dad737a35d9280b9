"""Parses a request for a job, and creates the job."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from api.dialects.headers import parse_lane
from api.dialects.parsing import invalid_body_error, texts_of, too_many_inputs_error
from api.dialects.request import MODEL_HEADER, PRIORITY_HEADER
from api.http.body import BodyLimits, BodyUnreadError, read_body
from api.http.protocol import QUEUE
from api.jobs.inputs import JobInput, check_text
from api.jobs.ndjson import NdjsonReader
from api.jobs.schema import NDJSON_TYPES, JobBody
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
from shared.process.tasks import yield_as_long

if TYPE_CHECKING:
    from fastapi import Request

    from api.queues import ServedQueue
    from api.state import State
    from api.tenants import Tenant

IDEMPOTENCY_HEADER = "idempotency-key"
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")
MAX_UPLOADS = 64
"""Maximum bodies of lines that are received at a time: each holds up to a portion in memory."""

UPLOADS_RETRY_S = 1.0
CHUNK_TEXTS = 1_024
"""Texts that are checked and split into entries at a time: in between, other tasks of the event loop run."""


async def create_job(request: Request, state: State, tenant: Tenant) -> tuple[ServedQueue, str]:
    """Creates the job that a request describes; returns its queue and its id.

    Raises:
        BodyUnreadError: the request was refused before its body was read to the end.
        RedbatchError: the request is malformed or too large, or cannot be accepted now.
    """
    headers = {name.lower(): value for name, value in request.headers.items()}
    idempotency_key = headers.get(IDEMPOTENCY_HEADER, "")
    if idempotency_key and not _IDEMPOTENCY_KEY.fullmatch(idempotency_key):
        raise BodyUnreadError(InvalidRequestError("Idempotency-Key: send up to 255 visible ASCII characters."))
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type in NDJSON_TYPES:
        return await _create_from_lines(request, state, headers, tenant, idempotency_key)
    body = await _parse_body(request, state, headers)
    texts = _body_texts(body, state.jobs.max_inputs)
    lane = parse_lane(body.priority or headers.get(PRIORITY_HEADER), BULK)
    queue = _queue_of(request, state, body.model or headers.get(MODEL_HEADER))
    job_request = _job_request(queue, tenant, lane, idempotency_key, state.jobs.timeout_s)
    upload = JobUpload(queue.job_store, state.jobs, job_request)
    return queue, await _upload_and_create(upload, _check_in_chunks(texts, state.limits.max_input_chars), queue)


async def _create_from_lines(
    request: Request, state: State, headers: Mapping[str, str], tenant: Tenant, idempotency_key: str
) -> tuple[ServedQueue, str]:
    if state.uploads >= MAX_UPLOADS:
        error = TooManyBodiesError("Too many jobs are being received: try again soon.", retry_after_s=UPLOADS_RETRY_S)
        raise BodyUnreadError(error)
    state.uploads += 1
    try:
        lane = parse_lane(headers.get(PRIORITY_HEADER), BULK)
        queue = _queue_of(request, state, headers.get(MODEL_HEADER))
        job_request = _job_request(queue, tenant, lane, idempotency_key, state.jobs.timeout_s)
        upload = JobUpload(queue.job_store, state.jobs, job_request)
        reader = NdjsonReader(state.jobs.max_inputs, state.limits.max_input_chars)
        return queue, await _upload_and_create(upload, _read_lines(request, headers, reader, state), queue)
    except RedbatchError as error:
        raise BodyUnreadError(error) from None
    finally:
        state.uploads -= 1


def _job_request(queue: ServedQueue, tenant: Tenant, lane: int, idempotency_key: str, timeout_s: float) -> JobRequest:
    limits = queue.dispatcher.monitor.limits(tenant, timeout_s)
    return JobRequest(tenant.name, lane, idempotency_key, limits)


async def _upload_and_create(upload: JobUpload, chunks: AsyncIterator[list[JobInput]], queue: ServedQueue) -> str:
    try:
        async for chunk in chunks:
            queue.check_memory()
            await upload.add(chunk)
        spans = queue.dispatcher.spans
        with nullcontext("") if spans is None else spans.job(upload.lane) as traceparent:
            return await upload.create(queue.workers(), traceparent)
    except BaseException:
        await upload.discard()
        raise


def _queue_of(request: Request, state: State, model: str | None) -> ServedQueue:
    """Returns the queue of a model. Redis must be reachable, but no worker need be alive.

    Raises:
        UnavailableError: Redis is out of reach, or no worker has been seen yet.
        ModelNotFoundError: no queue serves the model.
    """
    queue = state.queues.of_model(model)
    request.scope["state"][QUEUE] = queue.name
    if queue.dispatcher.monitor.cluster().redis_down_s > 0:
        raise RedisUnreachableError("Redis is out of reach: try again.", retry_after_s=1.0)
    return queue


async def _parse_body(request: Request, state: State, headers: Mapping[str, str]) -> JobBody:
    limits = BodyLimits(
        state.limits.max_v1_body_bytes, state.limits.body_timeout_s, state.body_budget, "max_v1_body_bytes"
    )
    pieces = await read_body(request, headers, limits)
    size = sum(map(len, pieces))
    try:
        async with state.parse_lock, yield_as_long():
            return JobBody.model_validate_json(b"".join(pieces))
    except ValidationError as error:
        raise invalid_body_error(error, ' Send {"texts": ["...", ...]}.') from None
    finally:
        state.body_budget.release(size)


def _body_texts(body: JobBody, max_inputs: int) -> list[str]:
    texts = texts_of(body.text, body.texts)
    if len(texts) > max_inputs:
        raise too_many_inputs_error(len(texts), max_inputs)
    return texts


async def _check_in_chunks(texts: list[str], max_chars: int) -> AsyncIterator[list[JobInput]]:
    for start in range(0, len(texts), CHUNK_TEXTS):
        yield [check_text(text, max_chars) for text in texts[start : start + CHUNK_TEXTS]]
        await asyncio.sleep(0)


async def _read_lines(
    request: Request, headers: Mapping[str, str], reader: NdjsonReader, state: State
) -> AsyncIterator[list[JobInput]]:
    """Yields the texts of a body of lines as they arrive.

    The whole body may take any time, but each pause between two pieces is limited to `body_timeout_s`.
    """
    max_bytes, timeout_s = state.jobs.max_body_bytes, state.limits.body_timeout_s
    content_length = headers.get("content-length", "0")
    if content_length.isdigit() and int(content_length) > max_bytes:
        raise _too_large(max_bytes)
    size, more_body = 0, True
    while more_body:
        try:
            async with asyncio.timeout(timeout_s):
                message = await request.receive()
        except TimeoutError:
            raise BodyTimeoutError(f"No data arrived for {timeout_s:g} s: send the body without long pauses.") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece, more_body = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        yield reader.feed(piece)
    yield reader.end()


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body is over the limit of {max_bytes} bytes: split it into several jobs.")
