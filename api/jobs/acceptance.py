"""The answer for a job that was accepted, and requests of computing routes that become jobs (RFC 7240)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import orjson
from fastapi import Response

from api.dialects.headers import JSON
from api.dialects.long_text import IN_CHUNKS
from api.dialects.quantization import FLOAT
from api.dispatch.size_limits import check_input_sizes, check_output_size
from api.jobs.creation import CHUNK_INPUTS, find_shard, new_upload, parse_idempotency_key, upload_and_create
from api.jobs.inputs import JobInput, check_input
from api.jobs.representation import job_links, status_url
from api.jobs.upload import JobRequest
from shared.errors import InvalidRequestError, RedisUnreachableError, UnavailableError
from shared.job_ids import format_public_id

if TYPE_CHECKING:
    from fastapi import Request

    from api.dialects.job_options import JobOptions
    from api.dialects.request import InferenceRequest
    from api.served_queue import Shard
    from api.state import State

PREFERENCE_APPLIED = {"preference-applied": "respond-async"}


async def accepted_response(shard: Shard, job_id: str, request_id: str) -> Response:
    """Returns the answer for a job that was created. Raises UnavailableError: Redis has lost the job since."""
    public_id = format_public_id(shard.queue, job_id, shard.number)
    status = "queued"
    with suppress(RedisUnreachableError):  # the job is accepted, even if its status cannot be read
        job = await shard.job_store.find(job_id)
        if job is None:
            raise UnavailableError("Redis has lost the job right after its creation: send it again.")
        status = job.status
    headers = {"location": status_url(public_id), "x-request-id": request_id}
    document = {"request_id": request_id, **job_links(public_id, status)}
    return Response(orjson.dumps(document), 202, headers, JSON)


async def respond_async(
    request: Request,
    state: State,
    headers: Mapping[str, str],
    inference: InferenceRequest,
    options: JobOptions,
    request_id: str,
) -> Response:
    """Creates a job from a request that a dialect has parsed, and returns the answer.

    Raises:
        InvalidRequestError: the queue does not offer the operation, or the idempotency key is malformed.
        RedbatchError: the job cannot be accepted now.
    """
    idempotency_key = parse_idempotency_key(headers)
    inference = state.queues.with_input_type(inference)
    queue, shard = await find_shard(request, state, inference.model, inference.tenant, idempotency_key)
    state.queues.check_op(queue, inference.op)
    if any(each != FLOAT for each in inference.output_types):
        raise InvalidRequestError("A job has float32: leave out the header Prefer, or the type of the numbers.")
    if inference.long_text in IN_CHUNKS:
        raise InvalidRequestError("A job has no chunks: leave out the header Prefer, or long_text.", param="long_text")
    if inference.parts:
        raise InvalidRequestError(
            "A job has one vector for each text: leave out the header Prefer, or return.", param="return"
        )
    inference = check_input_sizes(inference, queue.workers())
    check_output_size(inference, queue.workers())
    timeout_s = None if options.timeout_ms is None else options.timeout_ms / 1000
    limits = shard.monitor.limits(inference.tenant, timeout_s or state.jobs.timeout_s)
    text_options = await queue.with_prompt(inference.options, inference.input_type)
    job_request = JobRequest(
        inference.tenant.name, options.lane, idempotency_key, limits, inference.op, text_options, timeout_s
    )
    upload = new_upload(queue, shard, state, job_request)
    job_id = await upload_and_create(upload, _in_chunks(inference), queue, shard)
    response = await accepted_response(shard, job_id, request_id)
    response.headers.update(PREFERENCE_APPLIED)
    return response


async def _in_chunks(inference: InferenceRequest) -> AsyncIterator[list[JobInput]]:
    inputs, errors = inference.inputs, inference.input_errors
    for start in range(0, len(inputs), CHUNK_INPUTS):
        chunk = inputs[start : start + CHUNK_INPUTS]
        yield [check_input(value, errors.get(index)) for index, value in enumerate(chunk, start)]
