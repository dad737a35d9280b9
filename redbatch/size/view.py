"""The size of a deployment as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import NamedTuple

from rich.console import Group
from rich.text import Text

from redbatch.size.estimate import GATEWAY, REDIS, WORKER, Deployment, Requirements, WorkerSpeed
from redbatch.size.figures import Measured
from redbatch.tables import PlainTable, plain_table

NAMES = {GATEWAY: "gateways", WORKER: "workers", REDIS: "Redis"}
MEGA = 1e6
WHOLE = 100
"""Rates from here on are shown without decimals."""


class SizeView(NamedTuple):
    """A deployment, what it is for, and the figures that it was computed from."""

    model: str
    needed: Requirements
    speed: WorkerSpeed
    deployment: Deployment
    measured: Measured


def as_json(view: SizeView) -> str:
    """Returns one line of JSON; names end in units."""
    speed, deployment = view.speed, view.deployment
    vectors_per_s = speed.vectors_per_s if math.isfinite(speed.vectors_per_s) else None
    return json.dumps(
        {
            "model": view.model,
            **asdict(view.needed),
            "vectors_per_s_per_worker": vectors_per_s,
            **asdict(deployment),
            "notes": list(_notes(view)),
            "measured": asdict(view.measured.source) | {"cpu_us_per_request": dict(view.measured.cpu_us)},
        }
    )


def as_text(view: SizeView) -> Group:
    """Returns tables of processes, bandwidth and limits, then what the figures do not say."""
    notes = [Text(note) for note in (*_notes(view), _origin(view.measured))]
    deployment = view.deployment
    return Group(Text(_head(view), "bold"), _parts(deployment), "", _links(deployment), "", _limits(view), "", *notes)


def _head(view: SizeView) -> str:
    needed = view.needed
    inputs = f"{needed.inputs_per_request:,} input{'s' if needed.inputs_per_request > 1 else ''}"
    text = f"{needed.rate:,g} requests/s of {inputs} with {needed.tokens_per_input:g} tokens"
    return f"{text}, {view.model}, {needed.headroom:.0%} headroom"


def _parts(deployment: Deployment) -> PlainTable:
    table = plain_table("part")
    table.add_columns("processes", "cores", "busy cores", justify="right", no_wrap=True)
    for role, part in deployment.parts.items():
        cores = "see below" if part.cores is None else f"{part.cores:,}"
        table.add_row(NAMES[role], f"{part.processes:,}", cores, f"{part.busy_cores:,.2f}")
    return table


def _links(deployment: Deployment) -> PlainTable:
    table = plain_table("between")
    table.add_columns("there, MB/s", "back, MB/s", justify="right", no_wrap=True)
    for link in deployment.links:
        table.add_row(link.name, f"{link.there_bytes_per_s / MEGA:,.2f}", f"{link.back_bytes_per_s / MEGA:,.2f}")
    return table


def _limits(view: SizeView) -> PlainTable:
    """Returns the rate at which one process of each role is full, and what follows where the load exceeds it."""
    deployment, speed = view.deployment, view.speed
    parts, reached = deployment.parts, deployment.reached
    workers = "sets the number of workers"
    table = plain_table("limit of one")
    table.add_columns("CPU", "full at", justify="right", no_wrap=True)
    table.add_columns("with headroom")

    def add(name: str, role: str, requests_per_s: float, consequence: str) -> None:
        cost = f"{view.measured.cpu_us[role]:.0f} µs"
        state = Text(f"exceeded: {consequence}", "yellow") if role in reached else "not exceeded"
        table.add_row(name, cost, _rate(requests_per_s), state)

    add("gateway", GATEWAY, parts[GATEWAY].full_at_requests_per_s, f"{parts[GATEWAY].processes:,} gateways")
    add("worker process", WORKER, deployment.worker_process_full_at_requests_per_s, workers)
    if math.isfinite(speed.vectors_per_s):
        state = "" if WORKER in reached else workers
        table.add_row("worker's model", "", _rate(speed.vectors_per_s / view.needed.inputs_per_request), state)
    add("Redis", REDIS, parts[REDIS].full_at_requests_per_s, f"{parts[REDIS].processes:,} shards")
    return table


def _rate(requests_per_s: float) -> str:
    return f"{requests_per_s:,.0f} requests/s" if requests_per_s >= WHOLE else f"{requests_per_s:.3g} requests/s"


def _origin(measured: Measured) -> str:
    source = measured.source
    return (
        f"Figures: `{source.command}`, {source.started} UTC, commit {source.commit}, {source.machine} "
        f"({source.tables}). Cores differ in speed: measure yours with it."
    )


def _notes(view: SizeView) -> Iterator[str]:
    """Yields what the reader must know about this result, a sentence or two each."""
    needed, measured = view.needed, view.measured
    yield (
        "Busy cores do not include the model; CPU is per input. Add one gateway and one worker, so that one of each "
        "may fail."
    )
    if REDIS in view.deployment.reached:
        yield "One Redis is not enough: several shards share the load (docs/scaling.md)."
    if view.speed.cores is None:
        yield (
            "A worker has a GPU, or the cores on which you measured its vectors per second. No figure of this "
            "command was measured on a GPU."
        )
    if needed.inputs_per_request > 1:
        yield "Each input counts as a request of one: the CPU of further inputs is not measured, and lower."
    if needed.dim != measured.dim:
        yield f"CPU was measured with vectors of {measured.dim} numbers; more numbers cost more."
    model = measured.models.get(view.model)
    if (
        model is not None
        and view.speed.cores is not None
        and needed.tokens_per_input > (longest := model.speeds[-1].tokens)
    ):
        yield f"{view.model} was measured with up to {longest:g} tokens on average; longer texts are extrapolated."
