"""Leases of GPUs as pydantic models, for OpenAPI only: `shared.gpu_pools` makes it. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from api.dialects.response_models import examples

_HELD = {
    "slot": "0.0",
    "state": "held",
    "worker": "gpu-1-7f3a",
    "queue": "minilm",
    "host": "gpu-1",
    "fence": 1_795_222_341_215_000,
    "left_s": 12.9,
}
_FREE = {"slot": "1.0", "state": "free"}
_WAITING = {"worker": "gpu-1-9c20", "queue": "minilm", "host": "gpu-1", "slots": ["0.0", "1.0"], "waits_s": 1.2}
_POOL = {"pool": "node-1", "slots": [_HELD, _FREE], "waiting": [_WAITING]}


class HeldSlot(BaseModel):
    """A slot of a GPU that a worker holds."""

    model_config = examples(_HELD)

    slot: str
    state: Literal["held"]
    worker: str
    queue: str | None = Field(description="Null if the worker has no heartbeat, as after its death.")
    host: str | None
    fence: int
    left_s: float = Field(description="Until the lease expires, unless the worker renews it.")


class FreeSlot(BaseModel):
    """A slot that no worker holds."""

    model_config = examples(_FREE)

    slot: str
    state: Literal["free"]


class WaitingWorker(BaseModel):
    """A worker that waits for one of these slots."""

    model_config = examples(_WAITING)

    worker: str
    queue: str | None
    host: str | None
    slots: list[str]
    waits_s: float | None = Field(description="Null if it is not known.")


class GpuPool(BaseModel):
    """A pool of GPUs: the line of `redbatch leases --json`."""

    model_config = examples(_POOL)

    pool: str
    slots: list[HeldSlot | FreeSlot]
    waiting: list[WaitingWorker] = Field(description="In the order of their turns.")


_PROBLEM = "The Redis user of this gateway may not read leases: load a new file of users (docs/redis.md)."


class ConsoleLeases(BaseModel):
    """Answer of GET /console/leases: the pools that live workers use."""

    model_config = examples(
        {"age_s": 0.214, "problem": None, "pools": [_POOL]}, {"age_s": 0.214, "problem": _PROBLEM, "pools": []}
    )

    age_s: float = Field(description="Time since Redis was read.")
    problem: str | None = Field(description="Why leases cannot be read.")
    pools: list[GpuPool]
