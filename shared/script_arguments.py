"""Arguments of the Lua scripts as named rows: the fields of each row have the order and the names of its Lua header.

A script has one row of `…Arguments`, and as many of the rows that follow as these say. A flag is 0 or 1, and an absent
text is empty. Scripts with at most three arguments and no rows have no class here.
"""

from __future__ import annotations

from typing import NamedTuple

from shared.messages import NewEntry, Ref


class SubmitArguments(NamedTuple):
    """Arguments of `submit`; `num_requests` rows follow, each with its entries."""

    sequence_number: int
    max_queue_inputs: int
    max_queue_tokens: int
    max_queue_bytes: int
    bulk_share: float
    record_ttl_ms: int
    num_requests: int


class SubmitRequestRow(NamedTuple):
    """A request; `num_entries` rows follow."""

    lane: int
    request_id: str
    budget_ms: int
    is_exempt: int
    required_epoch: str | bytes
    max_lane_tokens: int
    bell: str
    tenant: str
    limits: str
    traceparent: str
    revision: str
    num_coalesced: int
    num_entries: int


class CancelArguments(NamedTuple):
    """Arguments of `cancel`; `num_entries` rows follow."""

    group: str
    num_lanes: int
    wake_ttl_ms: int
    num_entries: int


class ReconcileArguments(NamedTuple):
    """Arguments of `reconcile`; `num_requests` rows follow, each with its entries."""

    num_lanes: int
    num_requests: int


class ReconcileRequestRow(NamedTuple):
    """A request; `num_entries` rows follow."""

    request_id: str
    num_entries: int


class ReconcileEntryRow(NamedTuple):
    """An entry of the request before it."""

    lane: int
    entry_id: bytes


class ClaimArguments(NamedTuple):
    """Arguments of `claim`."""

    group: str
    consumer: str
    max_entries: int
    max_tokens: int
    max_bulk_entries: int
    max_bulk_tokens: int
    bulk_owed: int
    num_workers: int
    held: int
    bulk_held: int
    max_bytes: int


class CommitArguments(NamedTuple):
    """Arguments of `commit`; `num_entries` rows follow."""

    group: str
    num_lanes: int
    grace_ms: int
    bell_ttl_ms: int
    worker: str
    max_dead_letters: int
    max_dead_body_bytes: int
    job_prefix: str
    max_results: int
    revision: str
    num_entries: int


class CommitRow(NamedTuple):
    """An entry and its answer. The defaults remove an entry that names no request."""

    lane: int
    entry_id: bytes
    n: int
    cost: int
    counted_bytes: int = 0
    deadline_ms: int = 0
    request_id: str = ""
    reply_key: int = 0
    bell_key: int = 0
    reply: bytes = b""
    attempts: int = 0
    died_of: str = ""
    job_position: int | str = ""
    num_failed: int = 0
    num_truncated: int = 0


class RenewArguments(NamedTuple):
    """Arguments of `renew`; `num_entries` rows follow."""

    group: str
    consumer: str
    num_entries: int


class HandBackArguments(NamedTuple):
    """Arguments of `hand_back`; `num_entries` rows follow."""

    group: str
    consumer: str
    released_consumer: str
    idle_ms: int
    num_entries: int


class HeldRow(NamedTuple):
    """An entry that a worker holds."""

    lane: int
    entry_id: bytes
    attempts: int


class ReclaimArguments(NamedTuple):
    """Arguments of `reclaim`."""

    group: str
    consumer: str
    min_idle_ms: int
    max_entries: int
    owner: str
    issued_ms: int
    max_delay_ms: int
    begun_prefix: str
    worker_prefix: str
    restarted: int
    revision: str
    released_consumer: str
    max_bytes: int
    cursor: str


class HeartbeatArguments(NamedTuple):
    """Arguments of `heartbeat`."""

    worker: str
    heartbeat: str
    ttl_ms: int
    workers_ttl_ms: int
    standby: int


class ChargeRow(NamedTuple):
    """Tokens for `charge`."""

    tenant: str
    limits: str
    cost: int
    may_refuse: int
    age_ms: int


class UsageAddArguments(NamedTuple):
    """Arguments of `usage_add`; `num_rows` rows follow."""

    sequence_number: int
    age_ms: int
    hour_prefix: str
    max_rows: int
    other: str
    record_ttl_ms: int
    hour_ttl_ms: int
    num_rows: int


class UsageRow(NamedTuple):
    """A row of counts: see shared.usage_counts."""

    tenant: str
    queue: str
    op: str
    requests: int
    refusals: int
    failures: int
    inputs: int
    tokens: int
    cached_tokens: int
    device_us: int


class CacheRow(NamedTuple):
    """A vector for `cache_store`."""

    name: bytes
    value: bytes


class JobUploadArguments(NamedTuple):
    """Arguments of `job_upload`; `num_entries` rows of elements follow, then the rows of replies."""

    job_prefix: str
    job_id: str
    ttl_ms: int
    tenant: str
    limits: str
    inputs: int
    bytes: int
    tokens: int
    results: int
    max_jobs: int
    max_inputs: int
    max_bytes: int
    max_upload_bytes: int
    max_result_bytes: int
    tenant_share: float
    num_entries: int


class JobElementRow(NamedTuple):
    """An entry of a job, as it lies beside the job until it is fed."""

    position: int
    element: bytes


class JobReplyRow(NamedTuple):
    """The error of consecutive inputs that cannot be run."""

    position: int
    reply: bytes


class JobCreateArguments(NamedTuple):
    """Arguments of `job_create`."""

    job_prefix: str
    job_id: str
    num_entries: int
    num_failures: int
    num_failed: int
    num_inputs: int
    per_entry: int
    owner: str
    tenant: str
    lane: int
    timeout_ms: int
    ttl_ms: int
    entry_grace_ms: int
    digest: str
    result_bytes: int
    memory_ratio: float
    max_lane_entries: int
    max_lane_tokens: int
    max_lane_bytes: int
    traceparent: str
    op: str
    max_inline_bytes: int


class JobFeedArguments(NamedTuple):
    """Arguments of `job_feed`."""

    job_prefix: str
    max_lane_entries: int
    max_lane_tokens: int
    max_lane_bytes: int
    group: str
    max_results: int
    check_interval_ms: int
    result_ttl_ms: int


class JobSplitArguments(NamedTuple):
    """Arguments of `job_split`; `num_inputs` rows follow."""

    job_prefix: str
    job_id: str
    group: str
    entry_id: bytes
    position: int
    num_inputs: int


class JobInputRow(NamedTuple):
    """An input of an entry that is split."""

    cost: int
    body: bytes


class JobCancelArguments(NamedTuple):
    """Arguments of `job_cancel`."""

    job_prefix: str
    job_id: str
    group: str
    max_results: int
    if_expired: int
    if_open: int


ROWS: dict[str, tuple[type, ...]] = {
    "submit": (SubmitArguments, SubmitRequestRow, NewEntry),
    "cancel": (CancelArguments, Ref),
    "reconcile": (ReconcileArguments, ReconcileRequestRow, ReconcileEntryRow),
    "claim": (ClaimArguments,),
    "commit": (CommitArguments, CommitRow),
    "renew": (RenewArguments, HeldRow),
    "hand_back": (HandBackArguments, HeldRow),
    "reclaim": (ReclaimArguments,),
    "heartbeat": (HeartbeatArguments,),
    "charge": (ChargeRow,),
    "usage_add": (UsageAddArguments, UsageRow),
    "cache_store": (CacheRow,),
    "job_upload": (JobUploadArguments, JobElementRow, JobReplyRow),
    "job_create": (JobCreateArguments,),
    "job_feed": (JobFeedArguments,),
    "job_split": (JobSplitArguments, JobInputRow),
    "job_cancel": (JobCancelArguments,),
}
"""The rows of each script, in the order in which its header declares them. A test compares the two."""
