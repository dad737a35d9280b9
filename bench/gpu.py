"""`make bench-gpu`: throughput of models served on a GPU, compared with the same models offline.

python -m bench.gpu [--quick]

MiniLM, and a model of base size with random weights. When served, gateways, Redis and the load generator share the
machine with the worker. Requests have many texts, because a single gateway answers only some thousand requests per
second. GPU utilization is measured with the GPU's clock (`redbatch_device_busy_seconds_total`). Needs no network; takes
at most eight minutes.
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

from bench import redbatch_bench
from bench.batch_metrics import record_batches
from bench.child_process import run_module
from bench.cluster import Cluster, Shape, clean_environment, cluster
from bench.failures import FAILURES, reason
from bench.figures import Row
from bench.publication import Publication, publish, start_run
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
TIMEOUT_S = 240.0
CUDA = "cuda"
BUSY = "redbatch_device_busy_seconds_total"


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A short test run of one round; writes no document.")] = False,
    device: Annotated[str, typer.Option(help="Device for a test run; writes no document unless it is cuda.")] = CUDA,
) -> None:
    """Measures, and writes the table of the documents. Exits with 2 if there is no GPU."""
    configure_logging("bench", "warning")
    quick = quick or device != CUDA
    if device == CUDA and not devices.list_gpus():
        print("make bench-gpu needs an NVIDIA GPU with a driver, and found none.", file=sys.stderr)
        raise typer.Exit(2)
    run_start, rounds = start_run(), 1 if quick else ROUNDS
    with tempfile.TemporaryDirectory(prefix="redbatch-bench-") as name:
        folder = Path(name)
        targets = {"minilm": Target("minilm", device)}
        if device == CUDA:  # too slow on other devices
            targets["base size"] = Target(str(folder / "base"), device)
        try:
            _offline("--make", str(folder / "base"))
            rows = [
                row
                for round_ in range(rounds)
                for model, target in targets.items()
                for row in measure(model, target, round_, quick=quick)
            ]
        except FAILURES as error:
            sys.exit(f"bench: {reason(error)}")
    publish(Publication(BLOCK, table, quick), run_start, rounds, rows)


@dataclass(frozen=True, slots=True)
class Target:
    """A model, as a worker names it, and its device."""

    path: str
    device: str


def measure(model: str, target: Target, round_: int, *, quick: bool) -> Iterator[Row]:
    """Yields a row for each mix of texts: served and offline figures of the same round.

    In every other round the model is served first, because the machine's speed may drift.
    """
    print(f"round {round_ + 1}: {model}, offline and served", flush=True)
    results = {} if round_ % 2 else offline(target, quick=quick)
    served = serve(target, QUICK_S if quick else SERVED_S)
    results = results or offline(target, quick=quick)
    for mix in MIXES:
        rates: Mapping[str, float] = results["texts_per_s"][mix]
        encode = max(rate for how, rate in rates.items() if how.startswith("encode"))
        figures = {"encode_texts_per_s": encode, "share_of_encode": served[mix]["texts_per_s"] / encode}
        engine = {"engine_texts_per_s": next(rate for how, rate in rates.items() if how.startswith("engine"))}
        yield Row(BLOCK, {"model": model, "mix": mix, "dtype": results["dtype"]}, served[mix] | figures | engine)


def offline(target: Target, *, quick: bool) -> dict[str, Any]:
    """Returns the output of bench.gpu_offline. Raises ModuleError."""
    texts = QUICK_TEXTS if quick else TEXTS
    results: dict[str, Any] = json.loads(_offline(target.path, target.device, str(texts), *MIXES))
    return results


def _offline(*arguments: str) -> str:
    return run_module("gpu_offline", arguments, engine_environment(clean_environment({})), TIMEOUT_S)


def serve(target: Target, seconds: int) -> dict[str, dict[str, float]]:
    """Returns the figures of the served model by mix of texts."""
    settings = {"device": target.device, "max_batch_size": str(MAX_BATCH_SIZE)}
    with cluster(Shape(target.path, gateways=GATEWAYS, settings=settings)) as running:
        return {mix: _served(running, mix, seconds) for mix in MIXES}


def _served(running: Cluster, mix: str, seconds: int) -> dict[str, float]:
    load = ["--clients", str(CLIENTS), "--inputs-per-request", str(INPUTS), "--mix", mix, "--warmup", "0s"]
    redbatch_bench.run(running.url, *load, "--duration", "2s")
    busy = running.metric("worker", BUSY)
    with record_batches(running) as ran:
        measured = redbatch_bench.run(running.url, *load, "--duration", f"{seconds}s")["measured"]
    return {
        "texts_per_s": measured["inputs_per_s"],
        "p50_ms": measured["latency_ms"]["p50"] or 0.0,
        "busy": (running.metric("worker", BUSY) - busy) / measured["window_s"],
        "errors": float(sum(measured["errors"].values())),
        **ran,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns served and offline figures for each model and mix of texts, as Markdown."""
    heads = (
        "model",
        "texts",
        "format",
        "served, texts/s",
        "best encode",
        "× best encode",
        "GPU busy",
        "engine offline",
    )
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
