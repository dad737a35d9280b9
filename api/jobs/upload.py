"""Uploads a job's inputs to Redis in portions, and creates the job."""

from __future__ import annotations

import asyncio
import hashlib
import random
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, cast

from api.dispatch.admission import quota_error
from api.dispatch.size_limits import UNKNOWN_DIM
from api.dispatch.splitting import cost_of, inputs_per_entry, split_inputs
from api.jobs.inputs import JobInput, Pair, error_and_query
from api.jobs.refusals import refusal_error
from api.tenants import max_part
from shared import job_uploads, jobs
from shared.codec import encode_body
from shared.errors import (
    InvalidRequestError,
    KeyReusedError,
    NotDurableError,
    NothingToRunError,
    RedbatchError,
    RedisUnreachableError,
    TooLargeError,
    UnavailableError,
)
from shared.job_uploads import ELEMENT_BYTES, JOB_BYTES, UploadReservation
from shared.jobs import JobCapacity, JobSpec
from shared.messages import (
    DEFAULT_OPTIONS,
    EMBED,
    EMBED_ALL,
    EMBED_SPARSE,
    PREDICT,
    SCORE,
    VECTOR_OPS,
    Body,
    Failure,
    NewEntry,
    Options,
)
from shared.tenants import NO_QUOTA

if TYPE_CHECKING:
    from api.jobs.store import JobStore
    from api.settings_groups import JobSettings
    from shared.messages import Input
    from shared.tenants import Limits, QuotaWait

FLUSH_BYTES = 2**20
FLUSH_ENTRIES = 256
"""Bounds of one portion: bytes of its bodies, and number of its entries and failures."""

FLUSH_INTERVAL_S = 30.0
"""Flush interval of slow uploads; shorter than job_uploads.UPLOAD_TTL_MS, after which Redis drops a partial job."""

RESULT_BYTES = 64
"""Approximate bytes of a result beside its vector; what Redis needs for each reply is ELEMENT_BYTES."""

FAILED_INPUT_TOKENS = 1
"""What an input that cannot run costs its tenant: it is read, and its error is stored."""

CREATE_ATTEMPTS = 3
CREATE_PAUSE_S = 0.3


class JobRequest(NamedTuple):
    """The attributes of a job, without its inputs.

    `tenant` owns the job, and `limits` apply to it. `timeout_s` is the client's time limit, or None for the default.
    `idempotency` is the client's idempotency key, or "".
    """

    tenant: str
    lane: int
    idempotency: str = ""
    limits: Limits | None = None
    op: str = EMBED
    options: Options = DEFAULT_OPTIONS
    timeout_s: float | None = None


class JobUpload:
    """Uploads one job.

    Args:
        job_store: of the job's queue.
        settings: the bounds of jobs.
        request: the attributes of the job.
        dim: the dimension of the model's vectors.
        max_tokens: as in `cost_of`.

    Attributes:
        job_id: 128 random bits.
        lane: index of keys.LANES.
        options: of its texts.
        op: the operation on each input; it may be set until the first input is added.
    """

    def __init__(
        self,
        job_store: JobStore,
        settings: JobSettings,
        request: JobRequest,
        dim: int = UNKNOWN_DIM,
        max_tokens: int = 0,
    ) -> None:
        self._job_store = job_store
        self._settings = settings
        self._request = request
        self._buffer: list[JobInput] = []
        self._new_entries: list[NewEntry] = []
        self._failures: list[Failure] = []
        self._max_tokens = max_tokens
        self._dim = dim
        self._bytes = 0
        self._result_bytes = JOB_BYTES
        self._portion_bytes = 0
        self._num_entries = 0
        self._num_failures = 0
        self._num_failed = 0
        self._first_error = ""
        self._num_inputs = 0
        self._cost = 0
        self._flushed_at = time.monotonic()
        timeout = "" if request.timeout_s is None else f" {request.timeout_s:g}"
        self._digest = hashlib.sha256(f"{request.lane}{timeout}".encode())
        name = f"{request.tenant}\0{request.idempotency}"
        self._idempotency = hashlib.sha256(name.encode()).hexdigest() if request.idempotency else ""
        self._is_known = False
        self.job_id = secrets.token_hex(16)
        self.lane = request.lane
        self.options = request.options
        self.op = request.op

    @property
    def _vector_bytes(self) -> int:
        """The bytes of the vector of an input, or a guess; its op may be unknown until the first one is there."""
        dim = {SCORE: 1, EMBED_SPARSE: UNKNOWN_DIM}.get(self.op, self._dim)  # that of sparse ones is the vocabulary's
        return 4 * min(dim, self.options.dimensions or dim)

    async def add(self, inputs: Sequence[JobInput]) -> None:
        """Adds inputs, and uploads each full portion, after Redis has reserved quota and room for it.

        Raises:
            RateLimitedError: the tenant's rate limit is exceeded.
            TooLargeError: the inputs so far have more tokens than the tenant's quota for a whole day, or are more than
                the tenant could have of the room for jobs.
            TooManyJobsError, TooManyResultsError: the tenant has its share of the room for jobs, or for their results.
            JobsFullError: all jobs together, or Redis' memory, have reached their bound.
            UnavailableError: Redis is out of reach, or full.
        """
        self._buffer += inputs
        size = inputs_per_entry(self.op, self._settings.inputs_per_entry)
        start = 0
        while len(self._buffer) - start >= size:
            self._add_inputs(self._buffer[start : start + size])
            start += size
            if self._portion_bytes >= FLUSH_BYTES or len(self._new_entries) + len(self._failures) >= FLUSH_ENTRIES:
                await self._flush()
        del self._buffer[:start]
        if time.monotonic() - self._flushed_at > FLUSH_INTERVAL_S:
            await self._flush()

    async def create(self, traceparent: str = "") -> str:
        """Creates the job, and returns its id, or that of an earlier job with the same content and idempotency key.

        The job's entries carry `traceparent`.

        Raises:
            InvalidRequestError: the job has no inputs, or none that can run.
            KeyReusedError: the idempotency key belongs to another job.
            OverloadedError, JobsFullError, TooLargeError: as `add`.
            NotDurableError: the job did not become durable in time. Without an idempotency key, it was cancelled.
            UnavailableError: Redis is out of reach, or full. With an idempotency key, it is safe to send the job again.
        """
        self._add_inputs(self._buffer)
        self._buffer = []
        if not self._num_inputs:
            raise InvalidRequestError("There is no input: send at least one.")
        await self._flush()
        if self._num_failed == self._num_inputs:  # after the flush, which charges the tenant for them
            message = f"None of the inputs can run. {self._first_error}"
            raise NothingToRunError(message, quoted=self._first_error)
        capacity = JobCapacity(self._vector_bytes + RESULT_BYTES, self._settings.max_memory_ratio)
        result = await self._create(self._job_spec(traceparent), capacity)
        if result.status == "different":
            raise KeyReusedError("This Idempotency-Key belongs to another job: send another key.")
        if result.status == "lost":
            raise UnavailableError("Redis has lost the inputs uploaded so far: send the job again.")
        if result.status == "full":
            raise refusal_error("full")
        if result.status == "same":
            await self.discard()
        await self._confirm(result)
        return result.job_id

    async def _confirm(self, result: jobs.CreateResult) -> None:
        """Waits until a job is durable. Raises NotDurableError, RedisUnreachableError, and may cancel the job then."""
        store, settings = self._job_store, self._settings
        try:
            await store.durability.confirm(settings.durability, settings.durable_s, settings.durable_replicas)
        except (NotDurableError, RedisUnreachableError):
            # With an idempotency key, another request may have received the id of the job, and rely on the job.
            if result.status == "ok" and not self._request.idempotency:
                with suppress(RedisUnreachableError):
                    await jobs.cancel(store.upload_connection, store.keys, result.job_id)
            raise

    async def discard(self, *, refund: float = 1.0) -> None:
        """Removes the uploaded inputs if Redis answers; otherwise they expire after job_uploads.UPLOAD_TTL_MS.

        The tenant gets back this part of the tokens that they cost.
        """
        store, limits = self._job_store, self._request.limits
        with suppress(RedbatchError):
            await job_uploads.discard(store.upload_connection, store.keys, self.job_id, limits, refund=refund)

    def _quota_error(self, wait: QuotaWait) -> RedbatchError:
        limits = self._request.limits
        quota = NO_QUOTA if limits is None else limits.quota
        return quota_error(self._cost, quota, wait, random.random())  # noqa: S311 - spreads clients

    async def _create(self, spec: JobSpec, capacity: JobCapacity) -> jobs.CreateResult:
        """Creates the job; repeats the call if its answer was lost, which creates no second job."""
        for _ in range(CREATE_ATTEMPTS - 1):
            try:
                return await jobs.create(self._job_store.upload_connection, self._job_store.keys, spec, capacity)
            except RedisUnreachableError:
                await asyncio.sleep(CREATE_PAUSE_S)
        return await jobs.create(self._job_store.upload_connection, self._job_store.keys, spec, capacity)

    def _job_spec(self, traceparent: str) -> JobSpec:
        tenant, settings = self._request.tenant, self._settings
        timeout_s = min(settings.timeout_s, self._request.timeout_s or settings.timeout_s)
        return JobSpec(
            job_id=self.job_id,
            entries=self._num_entries,
            failed=self._num_failed,
            inputs=self._num_inputs,
            per_entry=inputs_per_entry(self.op, settings.inputs_per_entry),
            owner=tenant,
            tenant=tenant,
            lane=self._request.lane,
            timeout_ms=int(timeout_s * 1000),
            ttl_ms=int(settings.ttl_s * 1000),
            idempotency=self._idempotency,
            digest=self._digest.hexdigest(),
            traceparent=traceparent,
            op=self.op,
            failures=self._num_failures,
            max_inline_bytes=settings.inline_bytes(self.op),
        )

    def _add_inputs(self, inputs: Sequence[JobInput]) -> None:
        """Turns inputs into entries of up to MAX_ENTRY_BYTES for functions; invalid inputs become failures.

        Neighbours with the same query share an entry. Those with the same error share a failure, which ends with the
        entry that they would be in: so a reader of results finds each failure at a position where it looks for an
        entry.
        """
        for (error, query), group in groupby(inputs, error_and_query):
            part = tuple(group)
            if error is not None:
                self._add_failure(len(part), *error)
                continue
            valid = tuple([each.text if isinstance(each, Pair) else cast("Input", each) for each in part])
            for _, values in split_inputs(valid, len(valid), by_bytes=self.op == PREDICT):
                self._add_entry(values, query)

    def _add_failure(self, n: int, code: str, message: str) -> None:
        self._first_error = self._first_error or message
        self._digest.update(code.encode() * n)
        self._failures.append(Failure(self.job_id, self._num_inputs, n, code, message))
        self._num_inputs += n
        self._num_failed += n
        self._cost += n * FAILED_INPUT_TOKENS
        self._bytes += len(message) + ELEMENT_BYTES
        self._result_bytes += len(message) + ELEMENT_BYTES

    def _add_entry(self, inputs: Sequence[Input], query: str | None) -> None:
        options = self.options if query is None else self.options._replace(query=query)
        body = encode_body(Body(self.op, tuple(inputs), options))
        self._digest.update(body)
        cost = cost_of(self.op, inputs, self._max_tokens, options)
        self._new_entries.append(NewEntry(self._num_inputs, len(inputs), cost, body))
        self._num_inputs += len(inputs)
        self._cost += cost
        self._portion_bytes += len(body)
        self._bytes += len(body) + ELEMENT_BYTES
        num_vectors = cost if self.op == EMBED_ALL else len(inputs) if self.op in VECTOR_OPS else 0  # others: not known
        self._result_bytes += num_vectors * self._vector_bytes + len(inputs) * RESULT_BYTES + ELEMENT_BYTES

    async def _flush(self) -> None:
        """Uploads what is new; without anything new, it renews what was uploaded before."""
        new_entries, failures = self._new_entries, self._failures
        self._new_entries, self._failures, self._portion_bytes, self._flushed_at = [], [], 0, time.monotonic()
        self._num_entries += len(new_entries)
        self._num_failures += len(failures)
        if self._is_known or not (self._num_entries or self._num_failures):
            return
        self._check_size()
        store = self._job_store
        result = await job_uploads.upload(
            store.upload_connection, store.keys, self._reservation(), new_entries, failures
        )
        if result.status == "known":
            self._is_known = True
        elif result.status == "limited":
            raise self._quota_error(result.wait)
        elif result.status != "ok":
            raise refusal_error(result.status)

    def _check_size(self) -> None:
        """Raises TooLargeError: the tenant could not have this much of the room for jobs if it were all free."""
        bounds, limits = self._settings.bounds, self._request.limits
        part = 1.0 if limits is None else max_part(limits.quota.weight, bounds.tenant_share)
        num_inputs = self._num_inputs - self._num_failed
        for amount, maximum, unit, setting in (
            (num_inputs, bounds.inputs, "inputs", "max_owed_inputs"),
            (self._bytes, bounds.bytes, "bytes", "max_owed_bytes"),
            (self._bytes, bounds.upload_bytes, "bytes", "max_upload_bytes"),
            (self._result_bytes, bounds.result_bytes, "bytes of results", "max_result_ratio"),
        ):
            if amount > part * maximum:
                raise TooLargeError(
                    f"The job has over {int(part * maximum)} {unit}, which is all that it may have: split it into "
                    f"several jobs, or raise the setting {setting} of the gateway."
                )

    def _reservation(self) -> UploadReservation:
        return UploadReservation(
            job_id=self.job_id,
            inputs=self._num_inputs - self._num_failed,
            bytes=self._bytes,
            tokens=self._cost,
            results=self._result_bytes,
            tenant=self._request.tenant,
            limits=self._request.limits,
            bounds=self._settings.bounds,
            idempotency=self._idempotency,
        )
