"""The state of queues as pydantic models, for OpenAPI only: `shared.queue_view` makes it. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from api.dialects.response_models import examples

_NUMBERS: dict[str, Any] = {
    "waiting_entries": 44,
    "in_flight_entries": 256,
    "entries_by_lane": {"interactive": 290, "bulk": 10},
    "inputs": 5_000,
    "tokens": 90_000,
    "bytes": 0,
    "oldest_age_ms": 1_500,
    "oldest_age_ms_by_lane": {"interactive": 1_000, "bulk": 1_500},
    "open_jobs": 1,
    "dead_letters": 0,
    "redis_eviction_policy": "noeviction",
    "requests": 642,
    "requests_per_s": 21.4,
    "inputs_per_s": 171.2,
    "batch_size": 16.5,
    "p50_ms": 11.9,
    "p99_ms": 38.1,
    "errors": 0,
    "window_s": 30.0,
}
_WORKER: dict[str, Any] = {
    "worker": "gpu-1-7f3a",
    "host": "gpu-1",
    "pid": 7,
    "device": "cuda:0",
    "gpu": "NVIDIA H100 80GB HBM3",
    "gpu_memory_bytes": 85_520_809_984,
    "gpu_used_bytes": 3_221_225_472,
    "memory_bytes": 1_610_612_736,
    "model": "minilm",
    "revision": "8aadba9b60fb7294",
    "dim": 384,
    "ops": ["embed", "tokenize"],
    "state": "ready",
    "failing": "",
    "tokens_per_s": 21_000.0,
    "batch_size": 16.5,
    "max_batch_size": 64,
    "holds_entries": 256,
    "begun_entries": 64,
    "up_s": 60.0,
    "silent_s": 0.4,
}
_PLACE = "redis://gateway:***@redis:6379/0"
_PROBLEM = {
    "shard": 0,
    "redis": _PLACE,
    "error": "Redis did not answer (ConnectionError: Connection refused): try again.",
}
_SHARD = {"shard": 1, "redis": "redis://gateway:***@redis-1:6379/0", "error": None, **_NUMBERS, "workers": 1}


class LaneEntries(BaseModel):
    """Entries of each lane, waiting or in flight."""

    model_config = examples(_NUMBERS["entries_by_lane"])

    interactive: int
    bulk: int


class LaneAges(BaseModel):
    """Age of the oldest entry of each lane, ms; null if the lane is empty."""

    model_config = examples(_NUMBERS["oldest_age_ms_by_lane"], {"interactive": None, "bulk": None})

    interactive: int | None
    bulk: int | None


class QueueNumbers(BaseModel):
    """A queue, or a shard of it, in numbers; what its workers did is of the last `window_s`."""

    model_config = examples(_NUMBERS)

    waiting_entries: int
    in_flight_entries: int
    entries_by_lane: LaneEntries
    inputs: int
    tokens: int
    bytes: int
    oldest_age_ms: int = Field(description="Of all lanes; 0 if there is no entry.")
    oldest_age_ms_by_lane: LaneAges
    open_jobs: int
    dead_letters: int
    redis_eviction_policy: str | None
    requests: int
    requests_per_s: float
    inputs_per_s: float
    batch_size: float | None = Field(description="Mean inputs of a batch; null if none ran.")
    p50_ms: float | None = Field(description="From the submission to the answer; null without answers.")
    p99_ms: float | None
    errors: int = Field(description="Entries with an error that is not the client's fault.")
    window_s: float


class QueueWorker(BaseModel):
    """A worker, as it reported itself `silent_s` ago."""

    model_config = examples(_WORKER)

    worker: str
    host: str
    pid: int
    device: str
    gpu: str = Field(description="The product name of its GPU; empty on a CPU.")
    gpu_memory_bytes: int = Field(description="Memory that this GPU has; 0 if it is unknown.")
    gpu_used_bytes: int = Field(description="Memory in use on this GPU, by all processes; 0 if it is unknown.")
    memory_bytes: int = Field(description="Resident memory of the process of the model; 0 while it loads.")
    model: str
    revision: str = Field(description="Of the model; empty while it loads.")
    dim: int
    ops: list[str] = Field(description="The operations that its model offers.")
    state: str
    failing: str = Field(description="Why the model fails or does not load; empty if it does not fail.")
    tokens_per_s: float
    batch_size: float | None = Field(description="Mean inputs of its batches in the last seconds; null if none ran.")
    max_batch_size: int = Field(description="Maximum inputs of a batch; 0 while the model loads.")
    holds_entries: int
    begun_entries: int
    up_s: float
    silent_s: float = Field(description="Time since its last heartbeat.")


class UnreachableShard(BaseModel):
    """A shard whose Redis does not answer, and why."""

    model_config = examples(_PROBLEM)

    shard: int
    redis: str
    error: str


class QueueShard(QueueNumbers):
    """A shard of a queue."""

    model_config = examples(_SHARD)

    shard: int
    redis: str
    error: None
    workers: int = Field(description="Number of its live workers.")


class QueueState(QueueNumbers):
    """A queue: the line of `redbatch queue --json`. With several shards, numbers are sums over those that answer."""

    model_config = examples({"queue": "minilm", **_NUMBERS, "workers": [_WORKER]})

    queue: str
    workers: list[QueueWorker]
    shards: list[QueueShard | UnreachableShard] | SkipJsonSchema[None] = None


class ConsoleState(BaseModel):
    """Answer of GET /console/state. If no Redis answers, `queues` is empty and `problems` has the reasons."""

    model_config = examples(
        {
            "age_s": 0.214,
            "silent_after_s": 3.0,
            "problems": [],
            "queues": [{"queue": "minilm", **_NUMBERS, "workers": [_WORKER]}],
        },
        {"age_s": 2.003, "silent_after_s": 3.0, "problems": [_PROBLEM], "queues": []},
    )

    age_s: float = Field(description="Time since Redis was read.")
    silent_after_s: float = Field(description="A worker that has been silent for this time may be gone.")
    problems: list[UnreachableShard]
    queues: list[QueueState]
