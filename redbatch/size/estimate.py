"""The processes, cores and bandwidth that a rate of requests needs, from measured figures. Pure.

An input counts as a request of one input, which is what was measured. More inputs in a request cost less for each, so
that the result is then an upper bound. With `h` for the headroom:

- A process is full when it uses one core: at 1,000,000 / (µs of CPU per input) inputs per second. At low rates a
  request costs more (less of it is shared with others), but then the process is far from full.
- A worker is full at the vectors per second of its model, or when its process or its engine uses one core without the
  model, whichever is less.
- Processes = inputs per second / (inputs per second at which one is full × (1 - h)), rounded up, at least 1.
- Vectors per second of a model: the seconds per vector lie on a line through two measured lengths of text. Shorter
  texts count as the shorter of the two.
- Bytes between clients and gateways: an HTTP head, and BYTES_PER_TOKEN or BYTES_PER_JSON_NUMBER.
- Bytes between Redis and a side: text or vector (4 bytes per number), and what Redis received or sent beyond them in
  the measurement. How the two sides share this is not measured, so each has all of it: an upper bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from redbatch.size.figures import Measured, MeasuredModel

BYTES_PER_TOKEN = 4.8
"""English words, as the texts of `redbatch bench` (4.4 short, 4.8 mixed)."""

BYTES_PER_JSON_NUMBER = 12.4
BYTES_PER_NUMBER = 4
REQUEST_HEAD_BYTES = 150
ANSWER_HEAD_BYTES = 200
FREE = "null"
"""The model that costs nothing."""

GATEWAY, WORKER, REDIS = "gateway", "worker", "redis"
ENGINE = "engine"
ALMOST_NOTHING = 1e-9


@dataclass(frozen=True, slots=True)
class Requirements:
    """What to size for: requests per second, their inputs, and the share of each process that stays free."""

    rate: float
    inputs_per_request: int
    tokens_per_input: float
    dim: int
    headroom: float

    @property
    def inputs_per_s(self) -> float:
        """Inputs of all requests per second."""
        return self.rate * self.inputs_per_request


@dataclass(frozen=True, slots=True)
class WorkerSpeed:
    """Vectors per second of one worker, infinite if the model costs nothing; its cores, None if they are unknown."""

    vectors_per_s: float
    cores: int | None


@dataclass(frozen=True, slots=True)
class Part:
    """The processes of a role.

    Attributes:
        processes: their number.
        cores: cores to reserve for all of them; None if it depends on the model.
        busy_cores: of these, used at the rate; without what the model computes.
        full_at_requests_per_s: the rate at which one process is full.
    """

    processes: int
    cores: int | None
    busy_cores: float
    full_at_requests_per_s: float


@dataclass(frozen=True, slots=True)
class Link:
    """Bytes per second between two roles: from the first to the second, and back."""

    name: str
    there_bytes_per_s: float
    back_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Deployment:
    """The result: the parts by role, the links, and the roles of which the load exceeds what one process takes.

    `worker_process_full_at_requests_per_s` is the rate at which one worker is full if its model costs nothing. A worker
    is in `reached` only if its process, and not its model, sets the number of workers.
    """

    parts: dict[str, Part]
    links: tuple[Link, ...]
    worker_process_full_at_requests_per_s: float
    reached: tuple[str, ...]


def speed_of(model: MeasuredModel, tokens: float) -> WorkerSpeed:
    """Returns the speed of a worker for texts of this mean length."""
    first, last = model.speeds[0], model.speeds[-1]
    slope_s = (1 / last.vectors_per_s - 1 / first.vectors_per_s) / (last.tokens - first.tokens)
    seconds = 1 / first.vectors_per_s + slope_s * max(0.0, tokens - first.tokens)
    return WorkerSpeed(1 / seconds, model.cores_per_worker)


def estimate(needed: Requirements, speed: WorkerSpeed, measured: Measured) -> Deployment:
    """Returns the deployment for these requirements."""
    cpu_us = measured.cpu_us
    inputs_per_s = needed.inputs_per_s
    process_full_at = 1e6 / max(cpu_us[WORKER], cpu_us[ENGINE])
    full_at = {
        GATEWAY: 1e6 / cpu_us[GATEWAY],
        WORKER: min(speed.vectors_per_s, process_full_at),
        REDIS: 1e6 / cpu_us[REDIS],
    }
    processes = {role: _processes(inputs_per_s, each, needed.headroom) for role, each in full_at.items()}
    worker_us = cpu_us[WORKER] + cpu_us[ENGINE]
    busy_us = {GATEWAY: cpu_us[GATEWAY], WORKER: worker_us, REDIS: cpu_us[REDIS]}
    cores_each = {GATEWAY: 1, WORKER: speed.cores, REDIS: 1}
    parts = {
        role: Part(
            processes[role],
            None if (each := cores_each[role]) is None else each * processes[role],
            inputs_per_s * busy_us[role] / 1e6,
            full_at[role] / needed.inputs_per_request,
        )
        for role in full_at
    }
    reached = [role for role in (GATEWAY, REDIS) if processes[role] > 1]
    if processes[WORKER] > 1 and speed.vectors_per_s > process_full_at:
        reached.append(WORKER)
    return Deployment(parts, _links(needed, measured), process_full_at / needed.inputs_per_request, tuple(reached))


def _processes(inputs_per_s: float, full_at: float, headroom: float) -> int:
    """Returns the number of processes; a rounding error is not another process."""
    return max(1, math.ceil(inputs_per_s / (full_at * (1 - headroom)) - ALMOST_NOTHING))


def _links(needed: Requirements, measured: Measured) -> tuple[Link, ...]:
    text, vector = needed.tokens_per_input * BYTES_PER_TOKEN, needed.dim * BYTES_PER_NUMBER
    payload = measured.tokens * BYTES_PER_TOKEN + measured.dim * BYTES_PER_NUMBER
    beyond_in, beyond_out = measured.redis_in_bytes - payload, measured.redis_out_bytes - payload
    inputs_per_s = needed.inputs_per_s
    return (
        Link(
            "clients - gateways",
            needed.rate * REQUEST_HEAD_BYTES + inputs_per_s * text,
            needed.rate * ANSWER_HEAD_BYTES + inputs_per_s * needed.dim * BYTES_PER_JSON_NUMBER,
        ),
        Link("gateways - Redis", inputs_per_s * (text + beyond_in), inputs_per_s * (vector + beyond_out)),
        Link("workers - Redis", inputs_per_s * (vector + beyond_in), inputs_per_s * (text + beyond_out)),
    )
