"""The real model, MiniLM, served and offline, with the same texts in the same round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bench import redbatch_bench
from bench.batch_metrics import record_batches
from bench.cluster import Cluster, Shape, cluster
from bench.figures import Name, Row
from bench.limit import POOL_TEXTS, Limit, mean_tokens, measure_limit
from bench.measurement import ClosedLoop, Measurement, measure
from bench.single_client import ALTERNATIONS, compare_with_encode
from bench.step import ERRORS, Extent, Step, StepContext, figures_of
from bench.wrk import write_mix

PART = "real"
MIXES = ("short", "mixed")
MODEL = "minilm"
CLIENTS = (1, 64, 256)
LARGE = 1_000
LEAD_S = 1.0
SERVE_S = 36.0
LIMIT_S = 18.0
LIMIT_TEXT_S = {"short": 0.020, "mixed": 0.075}
LARGE_S = {"short": 1.5, "mixed": 4.5}
"""Estimates for two cores, in seconds; only the progress bar uses them."""


@dataclass(frozen=True, slots=True)
class ServedTexts:
    """Results of serving a mix, before the limit is known.

    `texts_per_s` is the rate of the texts from index `first` up to, not including, `last`. They repeat cyclically after
    `pool` texts; with None they do not repeat.
    """

    table: str
    of: dict[str, Name]
    figures: dict[str, float]
    texts_per_s: float
    first: int
    last: int
    pool: int | None


def steps(extent: Extent) -> list[Step]:
    """Returns the steps of each round."""
    served_s = SERVE_S + LIMIT_S + (1 + ALTERNATIONS) * extent.one_client_s + 2 * extent.real_s

    def texts_s(mix: str) -> float:
        return LIMIT_TEXT_S[mix] * extent.limit_texts + LARGE_S[mix] * extent.large_requests[mix]

    return [Step(PART, mix, served_s + texts_s(mix), partial(run, mix=mix)) for mix in MIXES]


def run(context: StepContext, mix: str) -> list[Row]:
    """Measures a mix. In every other round the limit is measured first, because the machine's speed drifts."""
    if context.round.number % 2 == 0:
        limit = _limit(context, mix)
        served, single_client = _serve(context, mix)
    else:
        served, single_client = _serve(context, mix)
        limit = _limit(context, mix)
    return [*_limit_rows(mix, limit), *(with_shares(limit, each) for each in served), single_client]


def _limit(context: StepContext, mix: str) -> Limit:
    context.show(f"limit, {mix} texts, offline")
    return measure_limit(mix, context.extent.limit_texts, MODEL)


def _limit_rows(mix: str, limit: Limit) -> list[Row]:
    rows = [
        Row("limit", {"mix": mix, "how": how}, {"texts_per_s": limit.texts / seconds})
        for how, seconds in limit.methods.items()
    ]
    best = {"texts_per_s": limit.texts / limit.best_s, "side_by_side_texts_per_s": limit.texts / limit.fastest_s}
    best["tuned_texts_per_s"] = limit.texts / limit.tuned_s
    mean = mean_tokens(limit.tokens, 0, limit.texts)
    return [*rows, Row("best", {"mix": mix}, best | {"mean_tokens": mean})]


def _serve(context: StepContext, mix: str) -> tuple[list[ServedTexts], Row]:
    extent, served = context.extent, []
    texts = write_mix(mix, context.folder, count=POOL_TEXTS)
    context.show(f"real, {mix} texts: loading the model")
    with cluster(Shape(MODEL)) as running:
        for clients in CLIENTS:
            context.show(f"real, {mix} texts, {clients} clients")
            window_s = extent.one_client_s if clients == 1 else extent.real_s
            with record_batches(running) as ran:
                measured = measure(running, texts, ClosedLoop(clients, window_s, LEAD_S))
            figures = figures_of(measured) | ran
            served.append(_closed_loop({"mix": mix, "clients": clients}, measured, figures))
        context.show(f"real, {mix} texts, {LARGE:,} in one request")
        served.append(_large(context, mix, running))
        context.show(f"real, {mix} texts, one client and encode, alternating")
        single_client = compare_with_encode(running, texts, MODEL, mix, extent.one_client_s / 2)
    return served, single_client


def _closed_loop(of: dict[str, Name], measured: Measurement, figures: dict[str, float]) -> ServedTexts:
    window = measured.requests_per_s, measured.first, measured.last
    return ServedTexts(PART, of, figures, *window, POOL_TEXTS)


def _large(context: StepContext, mix: str, running: Cluster) -> ServedTexts:
    """Sends requests of 1,000 texts, one after the other, from `redbatch bench`."""
    requests = context.extent.large_requests[mix]
    load = ["--clients", "1", "--inputs-per-request", str(LARGE), "--requests", str(requests), "--warmup", "0s"]
    with record_batches(running) as ran:
        measured = redbatch_bench.run(running.url, *load, "--mix", mix)["measured"]
    figures = {
        "texts_per_s": measured["inputs_per_s"],
        "p50_ms": measured["latency_ms"]["p50"] or 0.0,
        ERRORS: float(sum(measured["errors"].values())),
        **ran,
    }
    texts = requests * LARGE
    return ServedTexts("one-request", {"mix": mix}, figures, measured["inputs_per_s"], 0, texts, None)


def with_shares(limit: Limit, served: ServedTexts) -> Row:
    """Returns the figures, with the rate as a share of each offline rate of the same texts."""
    tokens = limit.tokens[: served.pool]
    mean = mean_tokens(tokens, served.first, served.last)
    shares = {
        "share_of_limit": limit.share(served.texts_per_s, mean, limit.best_s),
        "share_of_tuned": limit.share(served.texts_per_s, mean, limit.tuned_s),
        "share_of_side_by_side": limit.share(served.texts_per_s, mean, limit.fastest_s),
    }
    return Row(served.table, served.of, served.figures | shares)
