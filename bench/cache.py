"""`make bench-cache`: the effect of the vector cache if some texts are requested more often than others.

python -m bench.cache [--quick]

MiniLM, 64 clients, one short text per request. Texts are drawn from TEXTS texts by Zipf's law: the text of rank r has a
probability proportional to 1 / r^s. Measured without the cache, and with it for each s. The cache is empty at first;
the measurement starts after WARMUP_S.
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
from bench.publication import Publication, publish, start_run
from bench.tables import markdown, number
from redbatch.bench.target import encode_body
from redbatch.bench.texts import short_texts

BLOCK = "cache"

TEXTS = 100_000
REQUESTS = 200_000
"""More than are sent in a run: the generator sends them in order, and starts again at the end of the file."""

EXPONENTS = (0.7, 1.0, 1.3)
CLIENTS = 64
WARMUP_S, WINDOW_S = 10.0, 15.0
CACHE_BYTES = 500_000_000
ROUNDS = 3
SEED = 1


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A short test run of one round; writes no document.")] = False,
) -> None:
    """Measures with and without the cache, and writes the table of the documents."""
    run_start = start_run()
    rounds, window_s = (1, 2.0) if quick else (ROUNDS, WINDOW_S)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for round_ in range(rounds) for row in measure(Path(folder), round_, window_s)]
    publish(Publication(BLOCK, table, quick), run_start, rounds, rows)


def measure(folder: Path, round_: int, window_s: float) -> Iterator[Row]:
    """Yields a row for a cluster without a cache, and one for each exponent for a cluster with a cache."""
    for exponent, cached in ((1.0, False), *((each, True) for each in EXPONENTS)):
        print(f"round {round_ + 1}, s = {exponent:g}, {'with' if cached else 'without'} the cache", flush=True)
        bodies = write_requests(exponent, folder)
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


def write_requests(exponent: float, folder: Path) -> Path:
    """Writes the bodies of REQUESTS requests, one per line, and returns the file."""
    path = folder / f"zipf-{exponent:g}.jsonl"
    if not path.exists():
        bodies = [encode_body((text,)) for text in islice(short_texts(Random(SEED)), TEXTS)]  # noqa: S311 - texts, no secrets
        wrk.write_bodies(path, draw_requests(bodies, exponent, REQUESTS))
    return path


def draw_requests(bodies: Sequence[bytes], exponent: float, count: int) -> list[bytes]:
    """Returns this many bodies, drawn by Zipf's law: the first is the most frequent. Deterministic."""
    weights = list(accumulate((rank + 1) ** -exponent for rank in range(len(bodies))))
    return Random(SEED).choices(bodies, cum_weights=weights, k=count)  # noqa: S311 - no secrets


def table(folded: Sequence[Mapping[str, Any]]) -> str:
    """Returns the figures as Markdown."""
    heads = ["cache", "s", "requests/s", "p50 ms", "p99 ms", "hit ratio"]
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
