"""Statistics of the batches that ran during a measurement, from the worker's metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from bench.cluster import Cluster

PADDING = "redbatch_batch_padding_ratio"
INPUTS = "redbatch_inputs_total"
RUN = "redbatch_batch_inference_seconds_sum"
GAP = "redbatch_batch_gap_seconds"
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class _Totals:
    """Number of batches so far, and sums over them; `gaps` counts the gaps up to each bound, in seconds."""

    batches: float
    padding: float
    inputs: float
    run_s: float
    gap_s: float
    gaps: Mapping[float, float]


@contextmanager
def record_batches(running: Cluster) -> Iterator[dict[str, float]]:
    """Yields a dict; at the end of the block it has means over the batches of the block, and the gaps before them.

    A gap is the time that a runner was idle although inputs were waiting.
    """
    before = _totals(running)
    figures: dict[str, float] = {}
    yield figures
    after = _totals(running)
    number = after.batches - before.batches
    if not number:
        return
    gap_s, run_s = after.gap_s - before.gap_s, after.run_s - before.run_s
    gaps = {bound: count - before.gaps.get(bound, 0.0) for bound, count in after.gaps.items()}
    figures |= {
        "padding": (after.padding - before.padding) / number,
        "batch_inputs": (after.inputs - before.inputs) / number,
        "batch_ms": 1000 * run_s / number,
        "gap_ms": 1000 * gap_s / number,
        "gap_share": gap_s / (gap_s + run_s),
        **{f"gap_{name}_ms": 1000 * quantile(gaps, share) for name, share in QUANTILES.items()},
    }


def _totals(running: Cluster) -> _Totals:
    names = (f"{PADDING}_count", f"{PADDING}_sum", INPUTS, RUN, f"{GAP}_sum")
    number, padding, inputs, run_s, gap_s = (running.metric("worker", name) for name in names)
    return _Totals(number, padding, inputs, run_s, gap_s, running.buckets("worker", GAP))


def quantile(counts: Mapping[float, float], share: float) -> float:
    """Returns a quantile of a histogram; 0 for an empty one.

    `counts` maps each upper bound to the number of values up to it. Within a bucket, values are assumed to be evenly
    distributed, as Prometheus does. In the last bucket, which has no upper bound, they are assumed at its lower bound.
    """
    bounds = [0.0, *sorted(counts)]
    total = max(counts.values(), default=0.0)
    for lower, upper in pairwise(bounds):
        below, upto = counts.get(lower, 0.0), counts[upper]
        if upto >= share * total and upto > below:
            return (
                lower if upper == float("inf") else lower + (upper - lower) * (share * total - below) / (upto - below)
            )
    return 0.0
