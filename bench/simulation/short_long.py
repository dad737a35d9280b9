"""Single short texts beside requests of many long texts: with short ones first, and in the order of arrival.

The short texts of a run are compared with the same ones alone. The tokens per second are those of an overload: its
requests keep the device busy all the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile
from random import Random

from bench.simulation.cluster import Outcome, simulate
from bench.simulation.setup import DEVICES, PATHS, RequestPath, Setup
from bench.simulation.traffic import Traffic
from bench.tables import markdown, number, percent
from redbatch.bench.arrivals import poisson
from redbatch.bench.texts import MIXED_TOKENS, SHORT_WORDS, SPECIAL_TOKENS

BLOCK = "short-long"
SHARE = 0.05
LONG_INPUTS, LONG_TOKENS = 64, MIXED_TOKENS[1]
"""Requests of this share have this number of texts of this length; all others have one short text."""

LOAD, OVERLOAD = 0.7, 1.3
REQUESTS, SEEDS = 6_000, (1, 2, 3)
TIMEOUT_S = 60.0
OVERLOAD_RUN_S = 20.0
"""Duration of a run in overload. The backlog, and with it the time of a plan, grows."""

SHOWN_DEVICES = ("minilm-cpu", "gpu")
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The figures of a device.

    Attributes:
        device: its name.
        batch_ms: time of a full batch.
        alone: latency of short texts (ms) by percentile, without long ones.
        by_arrival: the same beside long ones, in the order of arrival.
        short_first: the same with short ones first.
        long_by_arrival: median latency of the long requests (ms), in the order of arrival.
        long_short_first: the same with short ones first.
        tokens_by_arrival: tokens per second in overload, in the order of arrival.
        tokens_short_first: the same with short ones first.
    """

    device: str
    batch_ms: float
    alone: dict[float, float]
    by_arrival: dict[float, float]
    short_first: dict[float, float]
    long_by_arrival: float
    long_short_first: float
    tokens_by_arrival: float
    tokens_short_first: float

    @property
    def bound_ms(self) -> float:
        """The p99 that short texts should keep: the one alone, and the time of one batch."""
        return self.alone[99.0] + self.batch_ms

    @property
    def loss(self) -> float:
        """The share of the throughput that short texts first cost."""
        return 1 - self.tokens_short_first / self.tokens_by_arrival


def compare_orders(
    device: str, requests: int = REQUESTS, seeds: tuple[int, ...] = SEEDS, overload_seeds: tuple[int, ...] = SEEDS
) -> Comparison:
    """Simulates a device with both orders, and short texts alone."""
    new = Setup(DEVICES[device], PATHS.get(device, RequestPath()), timeout_s=TIMEOUT_S)
    old = replace(new, short_first=False)
    rate = LOAD * capacity(device)
    runs = {name: [_run(setup, rate, requests, seed) for seed in seeds] for name, setup in (("new", new), ("old", old))}
    alone = [_run(new, rate, requests, seed, alone=True) for seed in seeds]
    overload = {
        name: sum(_tokens_per_s(setup, OVERLOAD * capacity(device), seed) for seed in overload_seeds)
        for name, setup in (("new", new), ("old", old))
    }
    return Comparison(
        device,
        DEVICES[device].costs.seconds(DEVICES[device].max_tokens) * 1000,
        _percentiles(alone),
        _percentiles(runs["old"]),
        _percentiles(runs["new"]),
        _percentiles(runs["old"], is_long=True)[50.0],
        _percentiles(runs["new"], is_long=True)[50.0],
        overload["old"] / len(overload_seeds),
        overload["new"] / len(overload_seeds),
    )


@cache
def capacity(device: str) -> float:
    """Returns the requests per second of a device that always has full batches of long texts."""
    costs, max_tokens = DEVICES[device].costs, DEVICES[device].max_tokens
    long, short = LONG_INPUTS * LONG_TOKENS, sum(SHORT_WORDS) / 2 + SPECIAL_TOKENS
    tokens = SHARE * long + (1 - SHARE) * short
    return DEVICES[device].runners * max_tokens / costs.seconds(max_tokens) / tokens


def traffic(rate: float, requests: int, seed: int, *, alone: bool = False) -> Traffic:
    """Returns Poisson arrivals, of short requests alone or of all; both have the same short ones."""
    random, until_s = Random(seed), requests / rate  # noqa: S311 - no secrets
    arrivals = [
        (at_s, random.random() < SHARE) for at_s in takewhile(lambda at_s: at_s < until_s, poisson(rate, random))
    ]
    kept = [(at_s, is_long) for at_s, is_long in arrivals if not (alone and is_long)]
    return Traffic((at_s for at_s, _ in kept), until_s, inputs=_inputs([is_long for _, is_long in kept], seed))


def _inputs(are_long: list[bool], seed: int) -> Iterator[tuple[int, ...]]:
    random = Random(seed)  # noqa: S311 - no secrets
    for is_long in are_long:
        yield (LONG_TOKENS,) * LONG_INPUTS if is_long else (random.randint(*SHORT_WORDS) + SPECIAL_TOKENS,)


def _run(setup: Setup, rate: float, requests: int, seed: int, *, alone: bool = False) -> Outcome:
    return simulate(setup, traffic(rate, requests, seed, alone=alone), seed)


def _tokens_per_s(setup: Setup, rate: float, seed: int) -> float:
    load = traffic(rate, round(OVERLOAD_RUN_S * rate), seed)
    outcome = simulate(replace(setup, timeout_s=float("inf")), load, seed)
    return sum(batch.tokens for batch in outcome.batches if batch.ended_s <= load.until_s) / load.until_s


def _percentiles(outcomes: list[Outcome], *, is_long: bool = False) -> dict[float, float]:
    """Returns the latency (ms) of short or long requests by percentile; a failed one counts with the longest time."""
    latencies = sorted(
        ((request.answered_s or 0.0) - request.sent_s) * 1000 if request.ok else TIMEOUT_S * 1000
        for outcome in outcomes
        for request in outcome.requests
        if (len(request.inputs) > 1) == is_long
    )
    at = {each: min(len(latencies) - 1, round(each / 100 * len(latencies))) for each in PERCENTILES}
    return {each: latencies[at[each]] if latencies else 0.0 for each in PERCENTILES}


def table(comparisons: Sequence[Comparison]) -> str:
    """Returns the figures as Markdown."""
    heads = (
        "device",
        "a full batch, ms",
        "p99 alone, ms",
        "p99 by arrival, ms",
        "p99 short first, ms",
        "long ones, p50 by arrival, ms",
        "p50 short first, ms",
        "throughput lost in overload",
    )
    rows = [
        [
            each.device,
            number(each.batch_ms),
            number(each.alone[99.0]),
            number(each.by_arrival[99.0]),
            number(each.short_first[99.0]),
            number(each.long_by_arrival),
            number(each.long_short_first),
            percent(each.loss),
        ]
        for each in comparisons
    ]
    return markdown(heads, rows)
