"""The ids of jobs for clients. Pure."""

from __future__ import annotations

import re

_SHARD = re.compile(r"(.*)@([1-9][0-9]{0,2})")


def format_shard_name(queue: str, shard: int) -> str:
    """Returns the name of a shard of a queue in the ids of its jobs: the first one, 0, has that of the queue."""
    return f"{queue}@{shard}" if shard else queue


def format_public_id(queue: str, job_id: str, shard: int = 0) -> str:
    """Returns the id of a job for clients: the name of its shard, and 128 random bits."""
    return f"{format_shard_name(queue, shard)}.{job_id}"


def split_public_id(public_id: str) -> tuple[str, int, str]:
    """Returns the queue, the number of the shard, and the job id of a public id."""
    queue, _, job_id = public_id.rpartition(".")
    match = _SHARD.fullmatch(queue)
    return (match[1], int(match[2]), job_id) if match else (queue, 0, job_id)
