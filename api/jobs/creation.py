"""Reads what a client asks to be done later, and makes a job of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from api.dialects.request import MODEL_HEADER, PRIORITY_HEADER, lane_of, malformed, too_many
from api.http.body import BodyUnread, Bounds, read_body
from api.http.protocol import QUEUE
from api.jobs.schema import LINES, JobBody
from api.jobs.inputs import Given, checked
from api.jobs.ndjson import Lines
from api.jobs.upload import Upload, Wanted
from api.http.handler import breathing_space
from shared.errors import BodyTimeout, BodyTooLarge, InvalidRequest, RedbatchError, RedisUnreachable, TooManyBodies
from shared.keys import BULK

if TYPE_CHECKING:
    from fastapi import Request

    from api.queues import ServedQueue
    from api.settings import GatewaySettings
    from api.state import State
    from api.tenants import Tenant

IDEMPOTENCY_HEADER = "idempotency-key"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
MOST_UPLOADS = 64
"""So many bodies of lines come in at a time: each has up to a portion in memory."""

UPLOADS_RETRY_S = 1.0
PART = 1_024
"""Texts that are made entries of at a time: it leaves the event loop to others in between."""


async def take(request: Request, state: State, tenant: Tenant) -> tuple[ServedQueue, str]:
    """Returns the queue and the id of the job that a request asks for.

    Raises:
        BodyUnread: its body was not read to the end.
        RedbatchError: it is malformed, too large, or cannot be taken now.
    """
    headers = {name.lower(): value for name, value in request.headers.items()}
    key = headers.get(IDEMPOTENCY_HEADER, "")
    if key and not _KEY.fullmatch(key):
        raise BodyUnread(InvalidRequest("Idempotency-Key: send up to 255 visible ASCII characters."))
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in LINES:
        return await _take_lines(request, state, headers, tenant, key)
    body = await _read(request, state, headers)
    texts = _texts_of(body, state.settings)
    lane = lane_of(body.priority or headers.get(PRIORITY_HEADER), BULK)
    queue = _queue_of(request, state, body.model or headers.get(MODEL_HEADER))
    upload = Upload(queue.desk, state.settings, _wanted(queue, tenant, lane, key, state.settings))
    return queue, await _finish(upload, _parts(texts, state.settings.max_input_chars), queue)


async def _take_lines(
    request: Request, state: State, headers: Mapping[str, str], tenant: Tenant, key: str
) -> tuple[ServedQueue, str]:
    settings = state.settings
    if state.uploads >= MOST_UPLOADS:
        full = TooManyBodies("Too many jobs come in: try again soon.", retry_after_s=UPLOADS_RETRY_S)
        raise BodyUnread(full)
    state.uploads += 1
    try:
        lane = lane_of(headers.get(PRIORITY_HEADER), BULK)
        queue = _queue_of(request, state, headers.get(MODEL_HEADER))
        upload = Upload(queue.desk, settings, _wanted(queue, tenant, lane, key, settings))
        lines = Lines(settings.max_job_inputs, settings.max_input_chars)
        return queue, await _finish(upload, _texts_in(request, headers, lines, settings), queue)
    except RedbatchError as error:
        raise BodyUnread(error) from None
    finally:
        state.uploads -= 1


def _wanted(queue: ServedQueue, tenant: Tenant, lane: int, key: str, settings: GatewaySettings) -> Wanted:
    limits = queue.dispatcher.monitor.limits(tenant, settings.job_timeout_s)
    return Wanted(tenant.name, lane, key, limits)


async def _finish(upload: Upload, given: AsyncIterator[list[Given]], queue: ServedQueue) -> str:
    try:
        async for some in given:
            queue.check_memory()
            await upload.add(some)
        sends = queue.dispatcher.sends
        with nullcontext("") if sends is None else sends.job(upload.lane) as traceparent:
            return await upload.make(queue.workers(), traceparent)
    except BaseException:
        await upload.forget()
        raise


def _queue_of(request: Request, state: State, model: str | None) -> ServedQueue:
    """Returns the queue of a model. No worker need live now; Redis has to. Raises Unavailable, or ModelNotFound."""
    queue = state.queues.named(model)
    request.scope["state"][QUEUE] = queue.name
    cluster = queue.dispatcher.monitor.cluster()
    if cluster.redis_down_s > 0:
        raise RedisUnreachable("Redis is out of reach: try again.", retry_after_s=1.0)
    return queue


async def _read(request: Request, state: State, headers: Mapping[str, str]) -> JobBody:
    settings = state.settings
    pieces = await read_body(request, headers, Bounds(settings.max_v1_body_bytes, settings.body_timeout_s, state.room))
    size = sum(map(len, pieces))
    try:
        async with state.parsing, breathing_space():
            return JobBody.model_validate_json(b"".join(pieces))
    except ValidationError as error:
        raise malformed(error, ' Send {"texts": ["...", ...]}.') from None
    finally:
        state.room.give_back(size)


def _texts_of(body: JobBody, settings: GatewaySettings) -> list[str]:
    if (body.text is None) == (body.texts is None):
        raise InvalidRequest('Send either {"text": "..."} or {"texts": ["...", ...]}.')
    texts = [body.text] if body.text is not None else body.texts or []
    if not texts:
        raise InvalidRequest("texts is empty: send at least one text.")
    if len(texts) > settings.max_job_inputs:
        raise too_many(len(texts), settings.max_job_inputs)
    return texts


async def _parts(texts: list[str], most_chars: int) -> AsyncIterator[list[Given]]:
    for start in range(0, len(texts), PART):
        yield [checked(text, most_chars) for text in texts[start : start + PART]]
        await asyncio.sleep(0)


async def _texts_in(
    request: Request, headers: Mapping[str, str], lines: Lines, settings: GatewaySettings
) -> AsyncIterator[list[Given]]:
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
            raise BodyTimeout(f"Nothing came for {settings.body_timeout_s:g} s: send on.") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece, more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > most:
            raise _too_large(most)
        yield lines.feed(piece)
    yield lines.end()


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is over the limit of {most} bytes: make several jobs of it.")
