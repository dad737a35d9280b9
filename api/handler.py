"""Handles one request: reads the body, parses it, has it embedded, and answers in the client's dialect."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from api import metrics
from api.dialects.base import BaseDialect
from api.dialects.headers import media_type_of, prefers_async
from api.dialects.job_options import JobOptions, parse_job_options
from api.dialects.quantization import WHOLE_NUMBERS
from api.dialects.ranking import score_activation
from api.dialects.request import PREFER_HEADER, REVISION_HEADER, TRUNCATED_HEADER, Stamp
from api.dialects.revisions import are_revisions, pin, split_model
from api.dialects.strict_body import check_no_query
from api.dispatch.admission import memory_full_error
from api.dispatch.cosines import cosines_of
from api.dispatch.splitting import size_of_request
from api.http.answer_cycle import WholeResponse
from api.http.body import BodyLimits, BodyUnreadError, read_body
from api.http.client_connection import CLIENT, ClientConnection, client_address
from api.http.error_responses import answer_error
from api.http.lingering_close import close_connection
from api.http.protocol import OP, QUEUE
from api.http.request_id import new_request_id, request_id_of
from api.http.request_log import TENANT
from api.http.share_holder import share_holder
from api.jobs.acceptance import respond_async
from api.memory_budget import SMALL_BYTES, HeldMemory
from api.tenants import ANONYMOUS
from api.usage_recording import count_answer
from shared.errors import InvalidRequestError, RedbatchError, UnavailableError
from shared.messages import CLASSIFY, EMBED, SCORE
from shared.process.tasks import yield_as_long

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from api.dialects.request import InferenceRequest, InferenceResult
    from api.served_queue import ServedQueue
    from api.state import State
    from api.tenants import ShareHolder
    from shared.api_keys import Scope as KeyScope

ACCEPTED = 202
LEAVING_RETRY_S = 0.1
"""Short, because another gateway can take the request at once."""


@dataclass(slots=True)
class Exchange:
    """A request while the gateway answers it.

    Attributes:
        request: the framework's request.
        state: of the gateway.
        headers: of the request, by names in lower case: a look-up in the framework's headers takes longer.
        dialect: of the route; once the body is read, of the body.
        request_id: the client's, for logs and for the answer's header.
        redis_id: the request's id in Redis.
        start: when the request arrived, monotonic (s).
        prefers_async: whether the client prefers a job to an answer (RFC 7240), on a route that creates jobs.
        job_options: set while the body is parsed if the client prefers a job to an answer; else None.
        body_memory: what the body holds of the budget of bodies; None: nothing.
    """

    request: Request
    state: State
    headers: Mapping[str, str]
    dialect: BaseDialect
    request_id: str
    redis_id: str
    start: float
    prefers_async: bool
    job_options: JobOptions | None = None
    body_memory: HeldMemory | None = None


async def serve(scope: Scope, receive: Receive, send: Send, state: State, dialect: BaseDialect) -> None:
    """Answers one request, as ASGI. Metrics are counted after the answer, so that no client waits for them."""
    start = time.monotonic()
    response = await respond(Request(scope, receive, send), state, dialect)
    if state.draining:  # the drain may have begun after the request arrived
        send = close_connection(send)
    took_s = time.monotonic() - start
    try:
        await response(scope, receive, send)
    finally:
        metrics.answers_counter(dialect.route, response.status_code).inc()
        count_answer(state.usage, scope["state"], response.status_code)
        if response.status_code != ACCEPTED:  # a job only begins with this answer
            metrics.DURATION.observe(took_s)


async def respond(request: Request, state: State, dialect: BaseDialect) -> Response:
    """Returns the answer to a request; errors become answers too."""
    redis_id = new_request_id()
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(request.scope["headers"])}
    request_id, start = request_id_of(headers, redis_id), time.monotonic()
    may_be_job = dialect.becomes_jobs and PREFER_HEADER in headers
    is_async = may_be_job and prefers_async(request.headers.getlist(PREFER_HEADER))
    exchange = Exchange(request, state, headers, dialect, request_id, redis_id, start, is_async)
    try:
        return await _answer(exchange)
    except asyncio.CancelledError:
        cause = _cause_of_cancel(exchange)
        if cause is None:
            raise
        return answer_error(cause, request, exchange.dialect, request_id)
    except Exception as error:  # noqa: BLE001 - its message may quote the client
        # In no other variable: its traceback refers to this frame, and such a cycle would keep the body for long.
        return answer_error(error, request, exchange.dialect, request_id)


def _cause_of_cancel(exchange: Exchange) -> Exception | None:
    """Returns why the task was cancelled: the client has left, or the drain's grace time is over; None: neither."""
    if exchange.request.scope["state"][CLIENT].gone:
        return ClientDisconnect()
    if exchange.state.draining:
        message = "This gateway is shutting down: send the request again."
        return UnavailableError(message, retry_after_s=LEAVING_RETRY_S)
    return None


async def _answer(exchange: Exchange) -> Response:
    scope, state = exchange.request.scope, exchange.state
    client: ClientConnection = scope["state"][CLIENT]
    try:
        scope_of_key: KeyScope = "jobs" if exchange.prefers_async else "embed"
        address = client_address(scope)
        tenant = await state.authenticate(exchange.headers, address, scope_of_key)
    except RedbatchError as error:
        raise BodyUnreadError(error) from None
    scope["state"][TENANT] = tenant
    holder = share_holder(tenant, address)
    try:
        request = await _read_request(exchange, client, holder)
        if tenant is not ANONYMOUS:
            request = request._replace(tenant=tenant)
        if exchange.job_options is not None:
            options, request_id = exchange.job_options, exchange.request_id
            scope["state"][OP] = request.op
            with _hold(state, holder, request):
                return await respond_async(exchange.request, state, exchange.headers, request, options, request_id)
        if exchange.prefers_async:  # but the body is one that runs at once, for which `jobs` is not enough
            await state.authenticate(exchange.headers, address, "embed")
    finally:  # the inputs of a job are in memory until they are uploaded
        if exchange.body_memory is not None:
            exchange.body_memory.release()
    request = state.queues.with_input_type(request)
    queue = state.queues.of_model(request.model)
    scope["state"][QUEUE] = queue.name
    return await _answer_from(queue, exchange, request, holder)


async def _answer_from(
    queue: ServedQueue, exchange: Exchange, request: InferenceRequest, holder: ShareHolder
) -> Response:
    state = exchange.state
    client: ClientConnection = exchange.request.scope["state"][CLIENT]
    cosines = cosines_of(request, queue.ops) if request.op == SCORE else None
    exchange.request.scope["state"][OP] = (cosines.request if cosines else request).op
    if cosines is None:
        has_cosines = request.op == SCORE
        state.queues.check_op(queue, request.op, returns_parts=bool(request.parts), has_cosines=has_cosines)
    queue.check_revision(request.revision)
    if request.model is None and exchange.dialect.reports_model:
        # while it waits, another model may join, and then no model is the default
        request = request._replace(model=queue.name)
    if exchange.dialect.has_stamp:
        request = request._replace(stamp=Stamp(exchange.request_id, int(time.time())))
    with _hold(state, holder, request) as memory:
        client.watch()
        try:
            client.check()
            computed = cosines.request if cosines else request
            answer = queue.answer_by_model if computed.needs_model else queue.answer
            result = await answer(computed, exchange.redis_id, memory)
        finally:
            client.unwatch()
        if request.needs_facts:
            request = await _with_facts(queue, request, result, is_cosine=cosines is not None)
        return _encode(exchange, request, cosines.score(result) if cosines else result)


async def _with_facts(
    queue: ServedQueue, request: InferenceRequest, result: InferenceResult, *, is_cosine: bool
) -> InferenceRequest:
    """Returns a request with what its answer needs to know of the model that has computed the result.

    Raises UnavailableError: the workers that could say it are gone.
    """
    revision = result.revision.partition(",")[0]
    if request.op == CLASSIFY:  # while it waited, a worker may have loaded the model
        request = request._replace(labels=await queue.find_labels(revision))
    if not WHOLE_NUMBERS.isdisjoint(request.output_types):
        request = request._replace(int8_ranges=await queue.find_int8_ranges(result))
    if request.op == SCORE and (is_cosine or not score_activation(await queue.find_ops(revision))):
        request = request._replace(ranking=request.ranking._replace(raw=True))
    return request


def _hold(state: State, holder: ShareHolder, request: InferenceRequest) -> HeldMemory:
    """Reserves the memory of the inputs, until the end of a `with` block. Raises OverloadedError: there is none."""
    memory = HeldMemory(state.in_flight_budget, holder)
    if not memory.grow(size_of_request(request, state.settings.inputs_per_entry)):
        raise memory_full_error(random.random())  # noqa: S311 - spreads clients
    return memory


def _encode(exchange: Exchange, request: InferenceRequest, result: InferenceResult) -> Response:
    state = exchange.state
    headers = exchange.dialect.headers(state, request, result, time.monotonic() - exchange.start)
    headers["x-request-id"] = exchange.request_id
    if are_revisions(revision := result.revision):  # it comes from a worker, by Redis
        headers[REVISION_HEADER] = revision
    if result.truncated:
        headers[TRUNCATED_HEADER] = str(len(result.truncated))
    return WholeResponse(exchange.dialect.encode_result(request, result), 200, headers)


async def _read_request(exchange: Exchange, client: ClientConnection, holder: ShareHolder) -> InferenceRequest:
    """Returns the request in the body; the caller releases `body_memory`. Raises BodyUnreadError, or RequestError."""
    state = exchange.state
    dialect = exchange.dialect
    limits = BodyLimits(
        dialect.max_bytes(state.limits),
        state.limits.body_timeout_s,
        state.body_budget,
        holder,
        dialect.body_setting,
        dialect.binary_types,
    )
    pieces, exchange.body_memory = await read_body(exchange.request, exchange.headers, limits)
    if exchange.body_memory is None or sum(map(len, pieces)) <= SMALL_BYTES:
        return _parse(exchange, pieces)
    async with state.parse_lock.turn(holder), yield_as_long():
        client.check()
        return _parse(exchange, pieces)


def _is_for_model_with(op: str, exchange: Exchange, body: bytes) -> bool:
    """Whether the model of a request offers an operation, and no embeddings; False if that is unknown."""
    if not exchange.state.queues.offers(op):  # so the long bodies of functions are parsed once
        return False
    try:
        queues = exchange.state.queues
        model, _ = split_model(exchange.dialect.model_of(body, exchange.headers), queues.serves)
        ops = queues.of_model(model).ops
        return op in ops and EMBED not in ops
    except RedbatchError:  # raised again when the request is parsed or sent
        return False


def _parse(exchange: Exchange, pieces: list[bytes]) -> InferenceRequest:
    body = b"".join(pieces)
    if not body and media_type_of(exchange.headers) not in exchange.dialect.binary_types:
        raise InvalidRequestError("The body is empty: send a JSON object.")
    pieces.clear()  # otherwise a large body would be in memory twice
    exchange.dialect = exchange.dialect.for_body(body)
    for op, dialect in exchange.dialect.for_ops(body):
        if _is_for_model_with(op, exchange, body):
            exchange.dialect = dialect
            break
    if exchange.dialect.strict_query and exchange.request.scope.get("query_string"):
        check_no_query(exchange.request.query_params)
    request = exchange.dialect.parse(body, exchange.headers, exchange.state.limits)
    if exchange.prefers_async and exchange.dialect.becomes_jobs:
        fields = b"" if media_type_of(exchange.headers) in exchange.dialect.binary_types else body
        exchange.job_options = parse_job_options(fields, exchange.headers, exchange.dialect.body_model)
        return request  # a job that is pinned is refused
    return pin(request, exchange.headers, exchange.state.queues.serves)
