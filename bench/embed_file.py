"""`make bench-embed`: throughput of `redbatch embed` on a file, compared with the model offline.

python -m bench.embed_file [--quick]

The command, a gateway, a worker with MiniLM and Redis share the machine; the time is that of the command, from its
start to its end. In every other round the limit is measured first, because the machine's speed drifts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated, Any

import numpy as np
import typer

from bench.cluster import Shape, clean_environment, cluster
from bench.figures import Row
from bench.limit import Limit, mean_tokens, measure_limit
from bench.publication import Publication, publish, start_run
from bench.tables import markdown, number
from redbatch.bench.texts import MIXES

BLOCK = "embed"
MODEL = "minilm"
TEXTS = {"short": 6_000, "mixed": 3_000}
"""Number of texts by mix. The offline run knows the tokens of two thirds of the short texts; their mean is used."""

LIMIT_TEXTS, QUICK_TEXTS = 384, 256
ROUNDS = 3
SEED = 1
"""Also the seed of the texts offline (bench.offline)."""


class EmbedError(RuntimeError):
    """The command failed, or did not write one vector per text; the message says which."""


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A short test run of one round; writes no document.")] = False,
) -> None:
    """Measures, and writes the table of the documents."""
    run_start, rounds = start_run(), 1 if quick else ROUNDS
    rows = [measure(mix, round_, quick=quick) for round_ in range(rounds) for mix in TEXTS]
    publish(Publication(BLOCK, table, quick), run_start, rounds, rows)


def measure(mix: str, round_: int, *, quick: bool) -> Row:
    """Returns the rate of the command for a mix, and its shares of the limits."""
    number_ = QUICK_TEXTS if quick else TEXTS[mix]
    print(f"round {round_ + 1}: {mix} texts", flush=True)
    if round_ % 2:
        seconds = embed(mix, number_)
        limit = offline(mix, quick=quick)
    else:
        limit = offline(mix, quick=quick)
        seconds = embed(mix, number_)
    rate, mean = number_ / seconds, mean_tokens(limit.tokens, 0, number_)
    figures = {
        "texts_per_s": rate,
        "limit_texts_per_s": limit.texts / limit.best_s,
        "share_of_limit": limit.share(rate, mean, limit.best_s),
        "share_of_side_by_side": limit.share(rate, mean, limit.fastest_s),
    }
    return Row(BLOCK, {"mix": mix, "texts": number_}, figures)


def offline(mix: str, *, quick: bool) -> Limit:
    """Returns the limit of a mix."""
    return measure_limit(mix, QUICK_TEXTS if quick else LIMIT_TEXTS, MODEL)


def embed(mix: str, texts: int) -> float:
    """Returns the time of the command for this many texts (s). Raises EmbedError."""
    with tempfile.TemporaryDirectory() as name, cluster(Shape(MODEL)) as running:
        source, out = Path(name) / "texts.jsonl", Path(name) / "vectors.npy"
        # No text occurs twice, unlike in a pool: equal inputs that wait at the same time are computed once.
        lines = (json.dumps(text) for text in islice(MIXES[mix](Random(SEED)), texts))  # noqa: S311 - no secrets
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        server = ["--url", running.url.removesuffix("/embed")]
        command = [sys.executable, "-P", "-m", "redbatch", "embed", str(source), "-o", str(out), *server]
        began = time.monotonic()
        process = subprocess.run(command, env=clean_environment({}), capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        if process.returncode != 0:
            raise EmbedError(f"redbatch embed failed: {process.stderr.strip()[-500:]}")
        vectors = np.load(out)
        if len(vectors) != texts or not np.isfinite(vectors).all():
            raise EmbedError(
                f"{len(vectors):,} vectors were written for {texts:,} texts, or some contain NaN or infinity"
            )
    return seconds


def table(folded: Sequence[Mapping[str, Any]]) -> str:
    """Returns the figures as Markdown."""
    heads = ["texts", "number", "texts/s", "limit, texts/s", "× the limit", "× the limit with batches side by side"]
    lines = []
    for row in folded:
        figures = {name: figure["median"] for name, figure in row["figures"].items()}
        share = row["figures"]["share_of_limit"]
        lines.append(
            [
                str(row["of"]["mix"]),
                f"{row['of']['texts']:,}",
                number(figures["texts_per_s"]),
                number(figures["limit_texts_per_s"]),
                f"{share['median']:.2f} ({share['min']:.2f} to {share['max']:.2f})",
                f"{figures['share_of_side_by_side']:.2f}",
            ]
        )
    return markdown(heads, lines, left=1)


if __name__ == "__main__":
    typer.run(main)
