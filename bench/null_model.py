"""Throughput, latency and cost of everything except the model, which is `null`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.cluster import Cluster, Shape, cluster
from bench.figures import Row
from bench.measurement import ClosedLoop, Measurement, measure
from bench.redbatch_bench import compare_with_wrk
from bench.step import Extent, Step, StepContext, figures_of
from bench.wrk import write_mix

PART = "null"
ROWS = ((1, (1, 64, 256)), (2, (256,)))
"""Number of gateways, and the numbers of clients that send to them."""

COMPARED = (1, 64)
"""Gateways and clients of the load that `redbatch bench` measures after wrk; then its requests have more inputs."""

INPUTS = 32
INPUTS_TABLE = "null-inputs"

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
            START_S + len(clients) * each_s + (COMPARE_S + extent.window_s + each_s) * (gateways == COMPARED[0]),
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
                context.show(f"null model, {INPUTS} inputs per request")
                rows += _compare_inputs(context, running, measured)
    return rows


def _compare_inputs(context: StepContext, running: Cluster, single: Measurement) -> list[Row]:
    """Returns the figures of requests of one input, which were measured just before, and of requests of many."""
    texts = write_mix("short", context.folder, inputs=INPUTS)
    load = ClosedLoop(COMPARED[1], context.extent.window_s, warmup_s=context.extent.warmup_s)
    rows = []
    for inputs, measured in {1: single, INPUTS: measure(running, texts, load)}.items():
        inputs_per_s = inputs * measured.requests_per_s
        figures = {"inputs_per_s": inputs_per_s, "ratio": inputs_per_s / single.requests_per_s}
        rows.append(Row(INPUTS_TABLE, {"inputs": inputs}, figures_of(measured) | figures))
    return rows


def _name(gateways: int) -> str:
    return f"{gateways} gateway{'' if gateways == 1 else 's'}"
