"""`make bench-gpu`: a GPU served, beside what the same models give on it offline.

python -m bench.gpu [--quick]

MiniLM, and a model of base size with random weights. Served: gateways, Redis and the generator share the machine with
the worker; requests of many texts, as a single gateway answers some thousand requests a second. How busy the GPU is,
its own clock says (`redbatch_device_busy_seconds_total`). Needs no network; takes at most eight minutes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.batches import batches
from bench.child import output_of
from bench.cluster import Cluster, Shape, clean_environment, cluster
from bench.failures import FAILURES, reason
from bench.figures import Row
from bench.own_block import OwnBlock, begin, publish
from bench.redbatch_bench import put
from bench.tables import markdown, number, percent
from gpuworker.gpu import devices
from gpuworker.ipc.engine_process import engine_environment
from shared.process.logs import configure_logging

BLOCK = "gpu"
MIXES = ("short", "mixed")
ROUNDS = 2
GATEWAYS = max(1, (os.cpu_count() or 1) // 4)
CLIENTS, INPUTS = 32, 256
TEXTS, QUICK_TEXTS = 4_096, 32
SERVED_S, QUICK_S = 12, 4
MAX_BATCH_SIZE = 1_024
PATIENCE_S = 240.0
CUDA = "cuda"
BUSY = "redbatch_device_busy_seconds_total"


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One short round: does it work? No document.")] = False,
    device: Annotated[str, typer.Option(help="Another than a GPU: does it work? No document.")] = CUDA,
) -> None:
    """Measures, and writes docs/performance.md's table; exits with 2 where there is no GPU."""
    configure_logging("bench", "warning")
    quick = quick or device != CUDA
    if device == CUDA and not devices.gpus():
        print("make bench-gpu needs an NVIDIA GPU and its driver, and sees none here.", file=sys.stderr)
        raise typer.Exit(2)
    begun, rounds = begin(), 1 if quick else ROUNDS
    with tempfile.TemporaryDirectory(prefix="redbatch-bench-") as name:
        folder = Path(name)
        places = {"minilm": Place("minilm", device, folder)}
        if device == CUDA:  # elsewhere it would take too long
            places["base size"] = Place(str(folder / "base"), device, folder)
        try:
            _offline("--make", str(folder / "base"))
            rows = [
                row
                for round_ in range(rounds)
                for model, place in places.items()
                for row in measure(model, place, round_, quick=quick)
            ]
        except FAILURES as error:
            sys.exit(f"bench: {reason(error)}")
    publish(OwnBlock(BLOCK, table, quick), begun, rounds, rows)


@dataclass(frozen=True, slots=True)
class Place:
    """A model as a worker names it, where it runs, and a folder for files."""

    path: str
    device: str
    folder: Path


def measure(model: str, place: Place, round_: int, *, quick: bool) -> Iterator[Row]:
    """Yields a row for each mix of texts: what is served, beside what is offline in the same round.

    In every other round it is served first, because the machine's speed may drift.
    """
    print(f"round {round_ + 1}: {model}, offline and served", flush=True)
    alone = {} if round_ % 2 else offline(place, quick=quick)
    served = serve(place, QUICK_S if quick else SERVED_S)
    alone = alone or offline(place, quick=quick)
    for mix in MIXES:
        rates: Mapping[str, float] = alone["texts_per_s"][mix]
        encode = max(rate for how, rate in rates.items() if how.startswith("encode"))
        figures = {"encode_texts_per_s": encode, "share_of_encode": served[mix]["texts_per_s"] / encode}
        engine = {"engine_texts_per_s": next(rate for how, rate in rates.items() if how.startswith("engine"))}
        yield Row(BLOCK, {"model": model, "mix": mix, "dtype": alone["dtype"]}, served[mix] | figures | engine)


def offline(place: Place, *, quick: bool) -> dict[str, Any]:
    """Returns what bench.gpu_offline finds. Raises LimitError."""
    texts = QUICK_TEXTS if quick else TEXTS
    found: dict[str, Any] = json.loads(_offline(place.path, place.device, str(texts), *MIXES))
    return found


def _offline(*arguments: str) -> str:
    return output_of("gpu_offline", arguments, engine_environment(clean_environment({})), PATIENCE_S)


def serve(place: Place, seconds: int) -> dict[str, dict[str, float]]:
    """Returns figures by mix of texts."""
    settings = {"device": place.device, "max_batch_size": str(MAX_BATCH_SIZE), "claim_window": "1024"}
    with cluster(Shape(place.path, gateways=GATEWAYS, settings=settings)) as running:
        return {mix: _served(running, place.folder, mix, seconds) for mix in MIXES}


def _served(running: Cluster, folder: Path, mix: str, seconds: int) -> dict[str, float]:
    load = ["--clients", str(CLIENTS), "--inputs-per-request", str(INPUTS), "--mix", mix, "--warmup", "0s"]
    put(running, folder, *load, "--duration", "2s")
    busy = running.metric("worker", BUSY)
    with batches(running) as ran:
        measured = put(running, folder, *load, "--duration", f"{seconds}s")["measured"]
    return {
        "texts_per_s": measured["inputs_per_s"],
        "p50_ms": measured["latency_ms"]["p50"] or 0.0,
        "busy": (running.metric("worker", BUSY) - busy) / measured["window_s"],
        "errors": float(sum(measured["errors"].values())),
        **ran,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Served beside offline, for each model and mix of texts."""
    heads = ("model", "texts", "format", "served, texts/s", "best encode", "of it", "GPU busy", "engine offline")
    return markdown(
        heads,
        [
            [
                row["of"]["model"],
                row["of"]["mix"],
                row["of"]["dtype"],
                number(row["figures"]["texts_per_s"]["median"]),
                number(row["figures"]["encode_texts_per_s"]["median"]),
                f"{row['figures']['share_of_encode']['median']:.2f}",
                percent(row["figures"]["busy"]["median"]),
                number(row["figures"]["engine_texts_per_s"]["median"]),
            ]
            for row in rows
        ],
    )


if __name__ == "__main__":
    typer.run(main)
