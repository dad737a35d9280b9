"""What each key in Redis holds, for the documents: shared/key_table.py renders it."""

from __future__ import annotations

from typing import NamedTuple


class KeyDoc(NamedTuple):
    """What the documents say of a key, or of keys that belong together. Texts are Markdown.

    `page` is the document that explains it: architecture, jobs or leases.
    """

    keys: tuple[str, ...]
    type: str
    written_by: str
    lifetime: str
    holds: str = ""
    page: str = "architecture"


_Q, _G = "rb:{<queue>}", "rb:{gpu:<pool>}"
_UNTIL_END = "until the job has ended"
_AFTER_END = "`job_ttl_s` after the job has ended"

KEY_DOCS = (
    KeyDoc((f"{_Q}:q:<lane>",), "stream", "gateways", "permanent; finished entries are deleted"),
    KeyDoc(
        (f"{_Q}:reply:<request id>",), "list", "workers", "remaining deadline + `reply_ttl_s` (10 s); popped at once"
    ),
    KeyDoc((f"{_Q}:bell:<gateway>",), "list", "workers", "60 s after the last ring; popped at once"),
    KeyDoc(
        (f"{_Q}:backlog",),
        "hash",
        "both",
        "reset when the lanes are empty",
        "`inputs`, `tokens` and `bytes` in the lanes, `bulk_tokens` in bulk",
    ),
    KeyDoc((f"{_Q}:epoch",), "string", "both", "permanent; a new value means that data was lost"),
    KeyDoc((f"{_Q}:submitted:<gateway>",), "string", "gateways", "6 min after the gateway's last submit"),
    KeyDoc((f"{_Q}:workers",), "zset", "workers", "an hour after the last heartbeat of any worker", "scores are ms"),
    KeyDoc(
        (f"{_Q}:standby",),
        "zset",
        "workers",
        "an hour after the last heartbeat of any of them",
        "the members of `workers` that take no work: they wait for a GPU, or their model fails",
    ),
    KeyDoc(
        (f"{_Q}:worker:<worker>",),
        "string, JSON",
        "workers",
        "`heartbeat_ttl_s` (5 s) after the last heartbeat; `<host>-failed`: a minute after a model did not load there",
    ),
    KeyDoc((f"{_Q}:begun:<worker>",), "string", "workers", "an hour after its last batch, or until it leaves"),
    KeyDoc((f"{_Q}:dead",), "stream", "workers", "permanent; the last `max_dead_letters` (200)"),
    KeyDoc(
        (f"{_Q}:cache", f"{_Q}:cache:0", f"{_Q}:cache:1"),
        "hash",
        "gateways",
        "four times `cache_ttl_s`",
        "at most `cache_bytes`",
    ),
    KeyDoc(
        (f"{_Q}:job:<id>",),
        "hash",
        "both",
        _AFTER_END,
        "the job: status, `op`, `n`, `done`, `failed`, `truncated`, owner, times",
        "jobs",
    ),
    KeyDoc((f"{_Q}:job:<id>:in",), "hash", "gateways", _UNTIL_END, "its inputs without a result, by position", "jobs"),
    KeyDoc(
        (f"{_Q}:job:<id>:todo",),
        "list",
        "gateways",
        _UNTIL_END,
        "the positions of inputs that have not been in a lane yet",
        "jobs",
    ),
    KeyDoc(
        (f"{_Q}:job:<id>:fed",), "hash", "both", _UNTIL_END, "the ids of its entries in the lane, by position", "jobs"
    ),
    KeyDoc(
        (f"{_Q}:job:<id>:out",),
        "hash",
        "workers",
        _AFTER_END,
        "replies, by position, as [a client would get them](architecture.md#a-reply)",
        "jobs",
    ),
    KeyDoc(
        (f"{_Q}:job:<id>:failed",), "list", "workers", _AFTER_END, "the positions of replies that are errors", "jobs"
    ),
    KeyDoc(
        (f"{_Q}:jobs",),
        "zset",
        "both",
        "permanent",
        "jobs that have not ended, by the number of tokens fed into the lanes",
        "jobs",
    ),
    KeyDoc((f"{_Q}:jobs:all",), "zset", "gateways", "permanent", "jobs by creation time", "jobs"),
    KeyDoc(
        (f"{_Q}:jobs:owed",),
        "hash",
        "both",
        "permanent",
        "inputs without a result; entries of jobs in the lanes, with their inputs, tokens and bytes; what open jobs "
        "and uploads hold, in all and by tenant: `jobs`, `job_inputs`, `job_bytes`, `upload_bytes`, `result_bytes`; "
        "`kept_bytes` of ended jobs; `asked`, written before a query to Redis whether all earlier writes are durable",
        "jobs",
    ),
    KeyDoc(
        (f"{_Q}:jobs:uploads",),
        "hash",
        "gateways",
        "permanent; an upload is removed with its end, or two minutes after its last inputs",
        "what each upload of a job reserves",
        "jobs",
    ),
    KeyDoc((f"{_Q}:jobs:kept",), "zset", "both", "permanent", "ended jobs by the expiry of their results", "jobs"),
    KeyDoc(
        (f"{_Q}:results",),
        "stream",
        "both",
        "permanent",
        "the last 10,000 jobs that ended, for an hour: `id`, `status`, `n`, `done`, `failed`, `op`, `owner`, and "
        "[their results](jobs.md#the-results-stream)",
        "jobs",
    ),
    KeyDoc(
        (f"{_Q}:idempotency:<digest>",),
        "hash",
        "gateways",
        "as long as its job may exist",
        "the job that belongs to an idempotency key",
        "jobs",
    ),
    KeyDoc(
        (f"{_Q}:tenants",),
        "hash",
        "gateways",
        "a day after the last request of any tenant",
        "the balance of each tenant",
    ),
    KeyDoc(
        (f"{_G}:slot:<slot>",),
        "string",
        "workers",
        "`gpu_lease_ttl_s` after its holder's last renewal",
        "the holder of a slot, and its fence",
        "leases",
    ),
    KeyDoc((f"{_G}:fence",), "string", "workers", "permanent; only grows", "the last fence", "leases"),
    KeyDoc(
        (f"{_G}:waiting:<slots>", f"{_G}:asked:<slots>"),
        "zset, hash",
        "workers",
        "while any worker waits for a turn",
        "waiting workers by their first request, and the time of their last one",
        "leases",
    ),
    KeyDoc(
        (f"{_G}:wake:<worker>",),
        "list",
        "workers",
        "10 s; popped at once",
        "wakes the worker whose turn it is",
        "leases",
    ),
    KeyDoc(
        ("rb:queues",),
        "zset",
        "workers",
        "ten minutes after the last heartbeat of any worker",
        "queues, scores are ms",
    ),
    KeyDoc(
        ("rb:keys",),
        "hash, JSON",
        "`redbatch keys`",
        "permanent",
        "the API keys of clients by id, the same for all queues",
    ),
    KeyDoc(
        ("rb:{usage:all}:hour:<hour>",),
        "hash",
        "both",
        "40 days",
        "[what tenants have used](usage.md) in an hour, a number since the epoch: a field for each tenant, queue and "
        "operation",
    ),
    KeyDoc(
        ("rb:{usage:all}:added:<process>",),
        "string",
        "both",
        "a day after its last call",
        "the number of the last call that added something to an hour",
    ),
)
"""Every key, in the order of the table in docs/architecture.md."""
