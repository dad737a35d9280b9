"""`make bench-cache`: what remembering vectors gives, where some texts are asked for more often than others.

python -m bench.cache [--quick]

MiniLM, 64 clients, a short text in each request. Texts are drawn from TEXTS by Zipf's law: the text of rank r is asked
for in proportion to 1 / r^s. Without the cache, and with it for each s, from empty: what is measured begins after
WARMUP_S.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer

from bench import wrk
from bench.cluster import Shape, cluster
from bench.figures import Row
from bench.publication import OwnBlock, begin, publish
from bench.tables import markdown, number
from redbatch.bench.target import body_of
from redbatch.bench.texts import short

BLOCK = "cache"

TEXTS = 100_000
REQUESTS = 200_000
"""More than are sent in a run: the generator sends them in turn, and begins again where they end."""

EXPONENTS = (0.7, 1.0, 1.3)
CLIENTS = 64
WARMUP_S, WINDOW_S = 10.0, 15.0
CACHE_BYTES = 500_000_000
ROUNDS = 3
SEED = 1


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One round, short: does it work? No document.")] = False,
) -> None:
    """Measures with and without the cache, and writes docs/performance.md's table."""
    begun = begin()
    rounds, window_s = (1, 2.0) if quick else (ROUNDS, WINDOW_S)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for number_ in range(rounds) for row in measure(Path(folder), number_, window_s)]
    publish(OwnBlock(BLOCK, table, quick), begun, rounds, rows)


def measure(folder: Path, number_: int, window_s: float) -> Iterator[Row]:
    """Yields what a cluster without a cache does, and what one with it does for each exponent."""
    for exponent, cached in ((1.0, False), *((each, True) for each in EXPONENTS)):
        print(f"round {number_ + 1}, s = {exponent:g}, {'with' if cached else 'without'} the cache", flush=True)
        bodies = requests(exponent, folder)
        settings = {"cache_bytes": str(CACHE_BYTES)} if cached else {}
        with cluster(Shape("minilm", settings=settings)) as running:
            wrk.run(running.url, bodies, clients=CLIENTS, seconds=WARMUP_S)
            before = [running.metric("gateway", name) for name in HITS_AND_MISSES]
            load = wrk.run(running.url, bodies, clients=CLIENTS, seconds=window_s)
            hits, misses = (
                running.metric("gateway", name) - was for name, was in zip(HITS_AND_MISSES, before, strict=True)
            )
        figures = {"requests_per_s": load.requests_per_s, "p50_ms": load.p50_ms, "p99_ms": load.p99_ms}
        figures |= {"hit_ratio": hits / max(1.0, hits + misses), "failed": float(load.errors)}
        yield Row(BLOCK, {"s": f"{exponent:g}", "cache": "on" if cached else "off"}, figures)


HITS_AND_MISSES = ("redbatch_cache_hits_total", "redbatch_cache_misses_total")


def requests(exponent: float, folder: Path) -> Path:
    """Writes the bodies of REQUESTS requests, one a line, and returns the file."""
    path = folder / f"zipf-{exponent:g}.jsonl"
    if not path.exists():
        bodies = [body_of((text,)) for text in islice(short(Random(SEED)), TEXTS)]  # noqa: S311 - texts, no secrets
        wrk.write_bodies(path, drawn(bodies, exponent, REQUESTS))
    return path


def drawn(bodies: Sequence[bytes], exponent: float, number_: int) -> list[bytes]:
    """Returns so many of some bodies, by Zipf's law: the first most often. The same ones for the same arguments."""
    weights = list(accumulate((rank + 1) ** -exponent for rank in range(len(bodies))))
    return Random(SEED).choices(bodies, cum_weights=weights, k=number_)  # noqa: S311 - no secrets


def table(folded: Sequence[Mapping[str, Any]]) -> str:
    """Returns the figures as Markdown."""
    heads = ["cache", "s", "requests/s", "p50 ms", "p99 ms", "found there"]
    lines = []
    for row in folded:
        figures = {name: figure["median"] for name, figure in row["figures"].items()}
        on = row["of"]["cache"] == "on"
        lines.append(
            [
                str(row["of"]["cache"]),
                str(row["of"]["s"]),
                number(figures["requests_per_s"]),
                number(figures["p50_ms"]),
                number(figures["p99_ms"]),
                f"{figures['hit_ratio']:.0%}" if on else "–",
            ]
        )
    return markdown(heads, lines, left=2)


if __name__ == "__main__":
    typer.run(main)
