"""Which requests may share a stream entry, and how much of them it may have. Pure."""

from __future__ import annotations

from api.dialects.request import InferenceRequest
from api.settings_groups import EntryLimits
from api.tenants import Tenant
from shared.keys import INTERACTIVE
from shared.long_entries import LONG_PARTS
from shared.messages import EMBED, Options
from shared.record import Record

MAX_REQUEST_INPUTS, MAX_CHARS = 4, 512
"""Maximum inputs of a request that may share an entry, and characters of each: a short text would wait for a long one
in the same entry.
"""

MAX_VECTORS_BYTES = 64 * 2**10
"""Maximum bytes of the vectors of an entry that requests share."""

TOKENS_MARGIN = 2
"""The tokens that a gateway estimates may be half of those that the tokenizer finds."""


class CoalescingLoad(Record, frozen=True):
    """What there is to share: interactive requests in flight of this gateway, and the ready workers.

    `vector_bytes` are those of a vector. An entry is long (shared.long_entries) with `min_long_tokens`, or with half of
    the inputs of `max_batch_size`. 0: unknown.
    """

    num_requests: int
    num_workers: int
    vector_bytes: int
    min_long_tokens: int
    max_batch_size: int


class EntryBounds(Record, frozen=True):
    """The maximum requests, inputs and estimated tokens of an entry that requests share."""

    requests: int
    inputs: int
    tokens: int


def entry_bounds(limits: EntryLimits, load: CoalescingLoad) -> EntryBounds:
    """Returns the bounds of an entry. If it may have one request only, none is shared.

    Each worker has several entries of the requests in flight, since a worker runs an entry alone. No shared entry is
    long: workers run long ones after short ones.
    """
    if not load.num_workers or not load.vector_bytes:
        return EntryBounds(0, 0, 0)
    return EntryBounds(
        min(load.num_requests // (limits.min_per_worker * load.num_workers), limits.max_requests),
        min(limits.max_inputs, MAX_VECTORS_BYTES // load.vector_bytes, (load.max_batch_size - 1) // LONG_PARTS),
        (load.min_long_tokens - 1) // TOKENS_MARGIN,
    )


def may_share(request: InferenceRequest) -> bool:
    """Whether a request may share an entry: it is small and interactive, and no quota has to be exact for it.

    Bulk requests wait for capacity, so that an entry for each costs nothing that anybody waits for; and workers are
    added by the number of entries.
    """
    inputs, quota = request.inputs, request.tenant.quota
    return (
        request.op == EMBED
        and request.lane == INTERACTIVE
        and 0 < len(inputs) <= MAX_REQUEST_INPUTS
        and max(map(len, inputs)) <= MAX_CHARS
        and not request.partial
        and not request.indices
        and not request.revision
        and not quota.tokens_per_s
        and not quota.daily_tokens
    )


class SharedKey(Record, frozen=True):
    """What the requests in an entry have in common."""

    options: Options
    tenant: Tenant
    timeout_ms: int
    was_accepted: bool


def shared_key(request: InferenceRequest) -> SharedKey:
    """Returns what a request must have in common with the others of its entry."""
    return SharedKey(request.options, request.tenant, request.timeout_ms, request.was_accepted)
