"""Cost of a one-text request in Redis, by model, append-only file, gateways and clients; and resources of processes."""

from __future__ import annotations

from functools import partial
from itertools import product

from bench.cluster import Cluster, Shape, cluster
from bench.cost import Processes, resources
from bench.figures import Name, Row
from bench.measurement import ClosedLoop, measure
from bench.step import MANY_CLIENTS, MANY_LEAD_S, Extent, Step, StepContext, figures_of
from bench.wrk import write_mix
from shared.keys import Keys
from shared.model_names import queue_slug

PART = "cost"
TABLE = "redis"
MODELS = ("null", "simulated:base_ms=5,item_ms=0.05")
"""The second takes 8 ms for a full batch of 64: more than a gateway can bring on two cores, so that thousands wait."""

GATEWAYS = (1, 8)
CLIENTS = (64, MANY_CLIENTS)
LEAD_S = 1.5
STEP_S = 16.0


def steps(extent: Extent) -> list[Step]:
    """Returns the steps of each round."""
    grid = product(MODELS, (False, True), GATEWAYS) if extent.whole_grid else [(MODELS[0], False, 1)]
    shapes = [Shape(model, gateways=gateways, appendonly=appendonly) for model, appendonly, gateways in grid]
    seconds = STEP_S + len(CLIENTS) * extent.cost_window_s
    return [Step(PART, _name(shape), seconds, partial(run, shape=shape)) for shape in shapes]


def run(context: StepContext, shape: Shape) -> list[Row]:
    """Measures one cluster, with few and with many clients."""
    rows: list[Row] = []
    texts = write_mix("short", context.folder)
    of: dict[str, Name] = {"model": shape.model, "appendonly": shape.appendonly, "gateways": shape.gateways}
    with cluster(shape) as running:
        for clients in CLIENTS:
            context.show(f"cost, {_name(shape)}, {clients:,} clients")
            inspection = _Inspection(running, shape)
            many = clients == MANY_CLIENTS
            loop = ClosedLoop(clients, context.extent.cost_window_s, MANY_LEAD_S if many else LEAD_S, warmup_s=0)
            measured = measure(running, texts, loop, inspection)
            figures = figures_of(measured) | {"queue_entries": inspection.entries}
            rows.append(Row(TABLE, of | {"clients": clients}, figures))
            if many and shape == Shape("null"):
                rows += inspection.rows
    return rows


def _name(shape: Shape) -> str:
    model, log = shape.model.partition(":")[0], "everysec" if shape.appendonly else "off"
    return f"{model}, AOF {log}, {shape.gateways} gateway{'' if shape.gateways == 1 else 's'}"


class _Inspection:
    """State of a cluster under load: entries in the queue, and rows with the resources of its processes."""

    def __init__(self, running: Cluster, shape: Shape) -> None:
        self._running = running
        self._lane = Keys(queue_slug(shape.model)).lanes[0]
        self.entries = 0.0
        self.rows: list[Row] = []

    def __call__(self, processes: Processes) -> None:
        self.entries = float(self._running.redis.xlen(self._lane))
        if len(processes["gateway"]) > 1:
            return  # each metrics page takes time, and the load ends soon
        in_flight = self._running.metric("gateway", "redbatch_requests_in_flight")
        now = resources(self._running.redis, processes)
        for role, rss_bytes in now.rss_bytes.items():
            figures = {"rss_mb": rss_bytes / 1e6, "torch": float(now.has_torch[role])}
            if role in now.connections:
                figures["redis_connections"] = float(now.connections[role])
            if role == "gateway":
                figures["in_flight"] = in_flight
            self.rows.append(Row("processes", {"role": role}, figures))
