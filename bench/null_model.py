"""Plumbing: everything but the model, which is `null`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.cluster import Shape, cluster
from bench.figures import Row
from bench.measurement import ClosedLoop, measure
from bench.redbatch_bench import compare_with_wrk
from bench.step import Extent, Stage, Step, figures_of
from bench.wrk import write_mix

PART = "plumbing"
ROWS = ((1, (1, 64, 256)), (2, (256,)))
"""Gateways, and the numbers of clients on them."""

BESIDE = (1, 64)
"""Where `redbatch bench` measures the same as wrk."""

OVERHEAD_S = 6.0
START_S = 3.0
BESIDE_S = 5.0


def steps(extent: Extent) -> list[Step]:
    """Returns what is to be done in each round."""
    each_s = OVERHEAD_S + extent.window_s
    return [
        Step(
            PART,
            _name(gateways),
            START_S + len(clients) * each_s + (BESIDE_S + extent.window_s) * (gateways == BESIDE[0]),
            partial(run, gateways=gateways, clients=clients),
        )
        for gateways, clients in ROWS
    ]


def run(stage: Stage, gateways: int, clients: Sequence[int]) -> list[Row]:
    """Measures one cluster with these numbers of clients, one after the other."""
    found = []
    texts = write_mix("short", stage.folder)
    with cluster(Shape("null", gateways=gateways)) as running:
        for number in clients:
            stage.say(f"plumbing, {_name(gateways)}, {number} clients")
            measured = measure(
                running, texts, ClosedLoop(number, stage.extent.window_s, warmup_s=stage.extent.warmup_s)
            )
            found.append(Row(PART, {"gateways": gateways, "clients": number}, figures_of(measured)))
            if (gateways, number) == BESIDE:
                stage.say("plumbing, the same with redbatch bench")
                found += compare_with_wrk(running.url, measured, stage.extent.window_s)
    return found


def _name(gateways: int) -> str:
    return f"{gateways} gateway{'' if gateways == 1 else 's'}"
