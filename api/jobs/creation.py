"""Parses a request for a job, and creates the job."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from api.dialects.headers import lane_of, media_type_of
from api.dialects.parsing import too_many_inputs_error
from api.dialects.request import MODEL_HEADER
from api.dialects.revisions import check_unpinned
from api.dialects.strict_body import check_no_query
from api.dialects.text_options import TextOptions, check_options
from api.dispatch.admission import memory_full_error, model_failing_error
from api.dispatch.size_limits import UNKNOWN_DIM, input_limit
from api.http.body import BodyLimits, BodyUnreadError, check_encoding, read_body
from api.http.protocol import OP, QUEUE
from api.http.share_holder import share_holder_of
from api.jobs.inputs import JobInput, check_pair, check_text, check_value
from api.jobs.kinds import PAIRS, VALUES, job_forms, op_of
from api.jobs.line_stream import read_lines
from api.jobs.ndjson import NdjsonReader
from api.jobs.schema import NDJSON_TYPES, JobBody, check_no_timeout, parse_job_body, parse_query
from api.jobs.upload import JobRequest, JobUpload
from api.memory_budget import INPUT_COPIES, HeldMemory, size_of_inputs
from api.tenants import find_refusal
from shared.errors import (
    InvalidRequestError,
    RedbatchError,
    RedisUnreachableError,
    TooManyBodiesError,
    UnavailableError,
    UnsupportedOperationError,
)
from shared.keys import BULK
from shared.messages import EMBED, SCORE
from shared.process.tasks import yield_as_long
from shared.tenants import UNBOUNDED

if TYPE_CHECKING:
    from fastapi import Request

    from api.served_queue import ServedQueue, Shard
    from api.state import State
    from api.tenants import Tenant

IDEMPOTENCY_HEADER = "idempotency-key"
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")
MAX_UPLOADS = 64
"""Maximum bodies of lines that are received at a time: each holds up to a portion in memory."""

COSINES = "For the cosines of its vectors, send the pairs to POST /rerank or /score, which are no jobs."
UPLOADS_RETRY_S = 1.0
BROKEN_UPLOAD_REFUND = 0.9
"""The part of its tokens that a client gets back for an upload that it breaks off, or may not continue.

The rest pays for what it stored in Redis: otherwise it could store any amount again and again.
"""

CHUNK_INPUTS = 1_024
"""Inputs that are checked and split into entries at a time: in between, other tasks of the event loop run."""


async def create_job(request: Request, state: State, tenant: Tenant) -> tuple[Shard, str]:
    """Creates the job that a request describes; returns its shard and its id.

    Raises:
        BodyUnreadError: the request was refused before its body was read to the end.
        RedbatchError: the request is malformed or too large, or cannot be accepted now.
    """
    headers = {name.lower(): value for name, value in request.headers.items()}
    try:
        idempotency_key = parse_idempotency_key(headers)
        check_no_timeout(headers)
        is_lines = media_type_of(headers) in NDJSON_TYPES
        if not is_lines:
            check_no_query(request.query_params)
    except InvalidRequestError as error:
        raise BodyUnreadError(error) from None
    if is_lines:
        check_encoding(headers)  # read_body does it for a document
        return await _create_from_lines(request, state, headers, tenant, idempotency_key)
    body, size = await _parse_body(request, state, headers)
    with HeldMemory(state.in_flight_budget, share_holder_of(request.scope)) as memory:
        if not memory.grow(max(size_of_inputs(body.values()), INPUT_COPIES * size)):
            raise memory_full_error(random.random())  # noqa: S311 - spreads clients
        return await _create_from_body(request, state, headers, tenant, idempotency_key, body)


async def _create_from_body(
    request: Request, state: State, headers: Mapping[str, str], tenant: Tenant, idempotency_key: str, body: JobBody
) -> tuple[Shard, str]:
    values = body.values()
    if len(values) > state.jobs.max_inputs:
        raise too_many_inputs_error(len(values), state.jobs.max_inputs, "max_job_inputs")
    lane = lane_of(body.priority, headers, BULK)
    model, input_type = state.queues.without_suffix(body.model or headers.get(MODEL_HEADER), body.purpose)
    queue, shard = await find_shard(request, state, model, tenant, idempotency_key)
    op = request.scope["state"][OP] = _check_op(state, queue, body.kind, body.model_fields_set)
    limits = shard.monitor.limits(tenant, state.jobs.timeout_s)
    options = await queue.with_prompt(body.options, input_type)
    job_request = JobRequest(tenant.name, lane, idempotency_key, limits, op, options)
    upload = new_upload(queue, shard, state, job_request)
    check = _check_of(body, state, queue)
    return shard, await upload_and_create(upload, _in_chunks(values, check), queue, shard)


def _check_of(body: JobBody, state: State, queue: ServedQueue) -> Callable[[Any], JobInput]:
    """Returns what checks each input of a body."""
    max_chars = state.limits.max_input_chars
    if body.kind == VALUES:
        return partial(check_value, limit=input_limit(state.limits.max_input_bytes, queue.workers()))
    if body.kind == PAIRS:
        return partial(check_pair, query=body.query or "", max_chars=max_chars)
    return partial(check_text, max_chars=max_chars)


def _check_op(state: State, queue: ServedQueue, kind: str, fields: Collection[str]) -> str:
    """Returns the operation on inputs of a kind.

    Raises InvalidRequestError: the queue does not offer it, or it has no such option as one of the fields.
    """
    op = op_of(kind, queue.ops)
    try:
        state.queues.check_op(queue, op, job_forms(queue.ops))
    except UnsupportedOperationError as error:
        if op == SCORE and EMBED in queue.ops:
            raise UnsupportedOperationError.of(op, f"{error.message} {COSINES}") from None
        raise
    check_options(fields, op)
    return op


def parse_idempotency_key(headers: Mapping[str, str]) -> str:
    """Returns the client's idempotency key, or "" without one. Raises InvalidRequestError: it is malformed."""
    idempotency_key = headers.get(IDEMPOTENCY_HEADER)
    if idempotency_key is not None and not _IDEMPOTENCY_KEY.fullmatch(idempotency_key):
        raise InvalidRequestError(
            "Idempotency-Key: send 1 to 255 visible ASCII characters, the same whenever you send this job again; or "
            "leave the header out."
        )
    return idempotency_key or ""


async def _create_from_lines(
    request: Request, state: State, headers: Mapping[str, str], tenant: Tenant, idempotency_key: str
) -> tuple[Shard, str]:
    state.uploads[tenant.name] += 1
    held = HeldMemory(state.body_budget, share_holder_of(request.scope))
    try:
        lane, fields = lane_of(None, headers, BULK), parse_query(request.query_params)
        model, input_type = state.queues.without_suffix(headers.get(MODEL_HEADER), fields.purpose)
        queue, shard = await find_shard(request, state, model, tenant, idempotency_key)
        limits = shard.monitor.limits(tenant, state.jobs.timeout_s)
        _check_slots(state, tenant, is_limited=limits is not None)
        options = await queue.with_prompt(fields.options, input_type)
        job_request = JobRequest(tenant.name, lane, idempotency_key, limits, options=options)
        upload = new_upload(queue, shard, state, job_request)
        reader = _reader_of(queue, state)
        chunks = _with_op(read_lines(request, headers, reader, state, held), reader, upload, queue, state, fields)
        job_id = await upload_and_create(upload, chunks, queue, shard)
        request.scope["state"][OP] = upload.op
        return shard, job_id
    except RedbatchError as error:
        raise BodyUnreadError(error) from None
    finally:
        state.uploads[tenant.name] -= 1
        if not state.uploads[tenant.name]:
            del state.uploads[tenant.name]
        held.release()


def _check_slots(state: State, tenant: Tenant, *, is_limited: bool) -> None:
    """Raises TooManyBodiesError: with this one, the tenant or all of them send more bodies of lines than they may."""
    share = state.jobs.bounds.tenant_share if is_limited else 1
    refusal = find_refusal(state.uploads[tenant.name], state.uploads.total(), MAX_UPLOADS, tenant.quota.weight, share)
    if refusal is not None:
        sender = "This tenant sends" if refusal == "share" else "Clients send"
        raise TooManyBodiesError(
            f"{sender} all the jobs in lines that this gateway may receive at a time: try again soon.",
            retry_after_s=UPLOADS_RETRY_S,
        )


def _reader_of(queue: ServedQueue, state: State) -> NdjsonReader:
    limit = input_limit(state.limits.max_input_bytes, queue.workers())
    return NdjsonReader(state.jobs.max_inputs, state.limits.max_input_chars, limit, queue.ops)


def new_upload(queue: ServedQueue, shard: Shard, state: State, request: JobRequest) -> JobUpload:
    """Returns the upload of a job; results of the shard's jobs are bounded by a part of the memory of Redis."""
    max_result_bytes = int(shard.monitor.max_memory_bytes() * state.jobs.max_result_ratio)
    bounds = state.jobs.bounds._replace(result_bytes=max_result_bytes or UNBOUNDED)
    dim = max((each.dim for each in queue.workers()), default=0) or UNKNOWN_DIM
    return JobUpload(shard.job_store, replace(state.jobs, bounds=bounds), request, dim, shard.monitor.max_input_tokens)


async def upload_and_create(
    upload: JobUpload, chunks: AsyncIterator[list[JobInput]], queue: ServedQueue, shard: Shard
) -> str:
    """Uploads the inputs and creates the job; returns its id. Raises RedbatchError, and removes the upload then."""
    queue.check_options(upload.options)
    try:
        async for chunk in chunks:
            shard.check_memory()
            await upload.add(chunk)
        spans = shard.dispatcher.spans
        with nullcontext("") if spans is None else spans.job(upload.lane) as traceparent:
            return await upload.create(traceparent)
    except BaseException as error:
        await upload.discard(refund=1.0 if isinstance(error, UnavailableError) else BROKEN_UPLOAD_REFUND)
        raise


async def find_shard(
    request: Request, state: State, model: str | None, tenant: Tenant, idempotency_key: str
) -> tuple[ServedQueue, Shard]:
    """Returns the queue of a model, and its shard for a job. Redis must be reachable, but no worker need be alive.

    Raises:
        ModelFailingError: the model could not be loaded.
        UnavailableError: Redis is out of reach, or no worker has been seen yet.
        ModelNotFoundError: no queue serves the model.
        InvalidRequestError: the request is pinned to a revision.
    """
    check_unpinned(model, request.headers, state.queues.serves)
    queue = state.queues.of_model(model)
    request.scope["state"][QUEUE] = queue.name
    shard = queue.shard_for_job(tenant, idempotency_key)
    monitor = shard.monitor
    if not monitor.num_ready:  # its only worker may have failed to load it since the last poll
        await monitor.poll()
    if monitor.cluster().redis_down_s > 0:
        raise RedisUnreachableError("Redis is out of reach: try again.", retry_after_s=1.0)
    if monitor.does_not_load:  # it may never run; a model that fails on batches may work again
        raise model_failing_error(monitor.cluster(), random.random())  # noqa: S311 - spreads clients
    return queue, shard


async def _parse_body(request: Request, state: State, headers: Mapping[str, str]) -> tuple[JobBody, int]:
    """Returns a body, and its size in bytes."""
    holder = share_holder_of(request.scope)
    limits = BodyLimits(
        state.limits.max_v1_body_bytes,
        state.limits.body_timeout_s,
        state.body_budget,
        holder,
        "max_v1_body_bytes",
        frozenset(NDJSON_TYPES[:1]),
    )
    pieces, memory = await read_body(request, headers, limits)
    size = sum(map(len, pieces))
    try:
        async with state.parse_lock.turn(holder), yield_as_long():
            return parse_job_body(b"".join(pieces)), size
    finally:
        if memory is not None:
            memory.release()


async def _in_chunks(values: list[Any], check: Callable[[Any], JobInput]) -> AsyncIterator[list[JobInput]]:
    for start in range(0, len(values), CHUNK_INPUTS):
        yield [check(value) for value in values[start : start + CHUNK_INPUTS]]
        await asyncio.sleep(0)


async def _with_op(
    chunks: AsyncIterator[list[JobInput]],
    reader: NdjsonReader,
    upload: JobUpload,
    queue: ServedQueue,
    state: State,
    fields: TextOptions,
) -> AsyncIterator[list[JobInput]]:
    """Yields the inputs of lines; the first line says what the job's operation is.

    Raises InvalidRequestError: the queue does not offer the operation, or this has no such option as one of `fields`.
    """
    is_checked = False
    async for chunk in chunks:
        if reader.kind is not None and not is_checked:
            upload.op = _check_op(state, queue, reader.kind, fields.model_fields_set)
            is_checked = True
        yield chunk
