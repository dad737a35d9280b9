"""The real model, MiniLM, served and offline: the same texts in the same round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bench import redbatch_bench
from bench.batch_metrics import batches
from bench.cluster import Cluster, Shape, cluster
from bench.figures import Name, Row
from bench.limit import POOL_TEXTS, Limit, mean_tokens, measure_limit
from bench.measurement import ClosedLoop, Measured, measure
from bench.single_client import TURNS, alone
from bench.step import ERRORS, Extent, Stage, Step, figures_of
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
"""What is to be expected of two cores: only the progress bar needs it."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What was found of a mix, before the limit is known: figures, texts a second, and the texts by index.

    These begin anew at the end of a `pool` of so many; with None they do not. The rate is that of the texts from
    `first` until before `last`.
    """

    table: str
    of: dict[str, Name]
    figures: dict[str, float]
    texts_per_s: float
    first: int
    last: int
    pool: int | None


def steps(extent: Extent) -> list[Step]:
    """Returns what is to be done in each round."""
    served_s = SERVE_S + LIMIT_S + (1 + TURNS) * extent.one_client_s + 2 * extent.real_s

    def texts_s(mix: str) -> float:
        return LIMIT_TEXT_S[mix] * extent.limit_texts + LARGE_S[mix] * extent.large_requests[mix]

    return [Step(PART, mix, served_s + texts_s(mix), partial(run, mix=mix)) for mix in MIXES]


def run(stage: Stage, mix: str) -> list[Row]:
    """Measures a mix: every other round the limit goes first, because the machine's speed drifts."""
    if stage.round.number % 2 == 0:
        limit = _limit(stage, mix)
        served, one = _serve(stage, mix)
    else:
        served, one = _serve(stage, mix)
        limit = _limit(stage, mix)
    return [*_limit_rows(mix, limit), *(beside(limit, each) for each in served), one]


def _limit(stage: Stage, mix: str) -> Limit:
    stage.say(f"limit, {mix} texts, offline")
    return measure_limit(mix, stage.extent.limit_texts, MODEL)


def _limit_rows(mix: str, limit: Limit) -> list[Row]:
    rows = [
        Row("limit", {"mix": mix, "how": how}, {"texts_per_s": limit.texts / seconds})
        for how, seconds in limit.ways.items()
    ]
    best = {"texts_per_s": limit.texts / limit.best_s, "side_by_side_texts_per_s": limit.texts / limit.least_s}
    best["tuned_texts_per_s"] = limit.texts / limit.tuned_s
    mean = mean_tokens(limit.tokens, 0, limit.texts)
    return [*rows, Row("best", {"mix": mix}, best | {"mean_tokens": mean})]


def _serve(stage: Stage, mix: str) -> tuple[list[Answered], Row]:
    extent, found = stage.extent, []
    texts = write_mix(mix, stage.folder, count=POOL_TEXTS)
    stage.say(f"real, {mix} texts: loading the model")
    with cluster(Shape(MODEL)) as running:
        for clients in CLIENTS:
            stage.say(f"real, {mix} texts, {clients} clients")
            window_s = extent.one_client_s if clients == 1 else extent.real_s
            with batches(running) as ran:
                measured = measure(running, texts, ClosedLoop(clients, window_s, LEAD_S))
            figures = figures_of(measured) | ran
            found.append(_closed_loop({"mix": mix, "clients": clients}, measured, figures))
        stage.say(f"real, {mix} texts, {LARGE:,} in one request")
        found.append(_large(stage, mix, running))
        stage.say(f"real, {mix} texts, one client and encode in turns")
        one = alone(running, texts, MODEL, mix, extent.one_client_s / 2)
    return found, one


def _closed_loop(of: dict[str, Name], measured: Measured, figures: dict[str, float]) -> Answered:
    window = measured.requests_per_s, measured.first, measured.last
    return Answered(PART, of, figures, *window, POOL_TEXTS)


def _large(stage: Stage, mix: str, running: Cluster) -> Answered:
    """Sends requests of 1,000 texts one after the other, by `redbatch bench`."""
    requests = stage.extent.large_requests[mix]
    load = ["--clients", "1", "--inputs-per-request", str(LARGE), "--requests", str(requests), "--warmup", "0s"]
    with batches(running) as ran:
        measured = redbatch_bench.run(running.url, *load, "--mix", mix)["measured"]
    figures = {
        "texts_per_s": measured["inputs_per_s"],
        "p50_ms": measured["latency_ms"]["p50"] or 0.0,
        ERRORS: float(sum(measured["errors"].values())),
        **ran,
    }
    texts = requests * LARGE
    return Answered("one-request", {"mix": mix}, figures, measured["inputs_per_s"], 0, texts, None)


def beside(limit: Limit, served: Answered) -> Row:
    """Returns the figures with those that the limit makes possible, each of the same texts."""
    tokens = limit.tokens[: served.pool]
    mean = mean_tokens(tokens, served.first, served.last)
    shares = {
        "share_of_limit": limit.share(served.texts_per_s, mean, limit.best_s),
        "share_of_tuned": limit.share(served.texts_per_s, mean, limit.tuned_s),
        "share_of_side_by_side": limit.share(served.texts_per_s, mean, limit.least_s),
    }
    return Row(served.table, served.of, served.figures | shares)
