"""Throughput, latency and cost of everything except the model, which is `null`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.cluster import Shape, cluster
from bench.figures import Row
from bench.measurement import ClosedLoop, measure
from bench.redbatch_bench import compare_with_wrk
from bench.step import Extent, Step, StepContext, figures_of
from bench.wrk import write_mix

PART = "null"
ROWS = ((1, (1, 64, 256)), (2, (256,)))
"""Number of gateways, and the numbers of clients that send to them."""

COMPARED = (1, 64)
"""Gateways and clients of the load that `redbatch bench` measures after wrk."""

OVERHEAD_S = 6.0
START_S = 3.0
COMPARE_S = 5.0


def steps(extent: Extent) -> list[Step]:
    """Returns the steps of each round."""
    each_s = OVERHEAD_S + extent.window_s
    return [
        Step(
            PART,
            _name(gateways),
            START_S + len(clients) * each_s + (COMPARE_S + extent.window_s) * (gateways == COMPARED[0]),
            partial(run, gateways=gateways, clients=clients),
        )
        for gateways, clients in ROWS
    ]


def run(context: StepContext, gateways: int, clients: Sequence[int]) -> list[Row]:
    """Measures one cluster with each of these numbers of clients."""
    rows = []
    texts = write_mix("short", context.folder)
    with cluster(Shape("null", gateways=gateways)) as running:
        for number in clients:
            context.show(f"null model, {_name(gateways)}, {number} clients")
            measured = measure(
                running, texts, ClosedLoop(number, context.extent.window_s, warmup_s=context.extent.warmup_s)
            )
            rows.append(Row(PART, {"gateways": gateways, "clients": number}, figures_of(measured)))
            if (gateways, number) == COMPARED:
                context.show("null model, the same load from redbatch bench")
                rows += compare_with_wrk(running.url, measured, context.extent.window_s)
    return rows


def _name(gateways: int) -> str:
    return f"{gateways} gateway{'' if gateways == 1 else 's'}"
