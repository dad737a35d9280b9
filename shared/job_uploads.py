"""Uploads of jobs: inputs that go into Redis as they arrive, once quota and room are reserved for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from shared import scripts
from shared.codec import encode_reply
from shared.connection import Argument, RedisConnection
from shared.keys import Keys
from shared.messages import Failure, NewEntry
from shared.script_arguments import JobElementRow, JobReplyRow, JobUploadArguments
from shared.tenants import (
    DEFAULT_JOB_BOUNDS,
    NO_WAIT,
    JobBounds,
    Limits,
    QuotaWait,
    encode_limits,
    parse_quota_wait,
)

UPLOAD_TTL_MS = 120_000
"""Inputs of a job that is not created within this time after its last inputs arrived are deleted."""

ELEMENT_BYTES = 128
"""About what Redis needs for an entry of a job, or an error, beside its content."""

JOB_BYTES = 1_536
"""About what Redis needs for an ended job beside its results, as in job_reservations.lua."""


@dataclass(frozen=True, slots=True)
class UploadReservation:
    """What an upload reserves, with its next inputs: `inputs` that can run, `bytes`, and `tokens` of all inputs.

    `results` are the bytes of the results that are expected of these.
    `limits` apply to its `tenant`, and `bounds` to all. While a job with its `idempotency` name exists, nothing is
    uploaded.
    """

    job_id: str
    inputs: int
    bytes: int = 0
    tokens: int = 0
    results: int = 0
    tenant: str = ""
    limits: Limits | None = None
    bounds: JobBounds = DEFAULT_JOB_BOUNDS
    idempotency: str = ""


class UploadResult(NamedTuple):
    """Outcome of an upload: `ok`, or nothing was stored.

    `known`: a job with the idempotency key exists. `full`: a bound of all jobs is reached. `share`: the tenant has its
    share of a bound. `results_full`, `results_share`: it is the bound of results. `limited`: the tenant may upload this
    after a `wait`.
    """

    status: Literal["ok", "known", "full", "share", "results_full", "results_share", "limited"]
    wait: QuotaWait = NO_WAIT


async def upload(
    connection: RedisConnection,
    keys: Keys,
    reservation: UploadReservation,
    new_entries: Sequence[NewEntry],
    failed: Sequence[Failure] = (),
) -> UploadResult:
    """Reserves, and stores inputs of a job that is to be created, and, for inputs that cannot run, their errors.

    Raises:
        RedisUnreachableError: whether the inputs were stored is unknown; repeating the call is safe. Redis may be full.
    """
    args: list[Argument] = [*_arguments(keys, reservation, len(new_entries))]
    for new_entry in new_entries:
        args += JobElementRow(new_entry.position, b"%d %d %b" % (new_entry.n, new_entry.cost, new_entry.body))
    for each in failed:
        args += JobReplyRow(each.position, encode_reply(each))
    job = keys.job(reservation.job_id)
    record = keys.idempotency(reservation.idempotency) if reservation.idempotency else job
    names = [job, keys.owed, keys.uploads, keys.tenants, record, keys.kept]
    status, *rest = await connection.run(scripts.JOB_UPLOAD, names, args)
    return UploadResult(status.decode(), parse_quota_wait(*rest) if rest else NO_WAIT)


def _arguments(keys: Keys, reservation: UploadReservation, num_entries: int) -> JobUploadArguments:
    bounds = reservation.bounds
    return JobUploadArguments(
        job_prefix=keys.job(""),
        job_id=reservation.job_id,
        ttl_ms=UPLOAD_TTL_MS,
        tenant=reservation.tenant,
        limits=encode_limits(reservation.limits),
        inputs=reservation.inputs,
        bytes=reservation.bytes,
        tokens=reservation.tokens,
        results=reservation.results,
        max_jobs=bounds.jobs,
        max_inputs=bounds.inputs,
        max_bytes=bounds.bytes,
        max_upload_bytes=bounds.upload_bytes,
        max_result_bytes=bounds.result_bytes,
        tenant_share=bounds.tenant_share,
        num_entries=num_entries,
    )


async def discard(
    connection: RedisConnection, keys: Keys, job_id: str, limits: Limits | None = None, *, refund: float = 1.0
) -> None:
    """Removes an upload, unless its job was created. Its tenant, with `limits`, gets that part of its tokens back."""
    names = [keys.job(job_id), keys.owed, keys.uploads, keys.tenants]
    await connection.run(scripts.JOB_DISCARD, names, [job_id, encode_limits(limits), refund])
