"""`make bench-jobs`: latency of requests while a large job runs, and the throughput of the job.

python -m bench.jobs [--quick]

Requests with a short text arrive at random (Poisson), first without and then with a job of JOB_TEXTS texts: once with
the default bound on the time of a batch with bulk inputs (`bulk_stretch`), and once without a bound.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple, Self

import httpx
import typer

from bench import jobs_plot, redbatch_bench
from bench.cluster import Cluster, Shape, cluster
from bench.document import IMAGES
from bench.figures import Row
from bench.publication import Publication, publish, start_run
from bench.rounds import Round
from bench.step import ERRORS
from bench.tables import markdown, number
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import short_texts

BLOCK = "jobs"
PICTURE = "jobs.png"

JOB_TEXTS = 100_000
UNBOUNDED = 1_000.0
STRETCHES = (WorkerSettings.model_fields["bulk_stretch"].default, UNBOUNDED)
ROUNDS = 3
WINDOW_S, QUICK_S = 12.0, 5.0
SETTLE_S = 2.0
"""Time from the start of the job to the start of the measurement."""
TIMEOUT_S = 60.0
INFERENCE = "redbatch_batch_inference_seconds_sum"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A model, its number of concurrent batches, and the rate of requests (per second)."""

    model: str
    runners: int
    rate: float


SCENARIOS = (Scenario("simulated:base_ms=10,item_ms=0.2", 1, 300), Scenario("minilm", 2, 30))
"""Requests alone keep the first model busy, with batches of three. A single request of MiniLM uses both cores."""


class JobProgress(NamedTuple):
    """Progress of a job at a time (s): finished texts, and total run time of batches (s)."""

    at_s: float
    done: int
    ran_s: float

    @classmethod
    def of(cls, running: Cluster, status_url: str) -> Self:
        """Returns the progress now. Raises JobError if the job has ended."""
        job = httpx.get(status_url, timeout=TIMEOUT_S).json()
        if job["status"] not in ("queued", "running"):
            raise JobError(f"the job is {job['status']}: it must run until the end of the measurement")
        return cls(time.monotonic(), job["done"], running.metric("worker", INFERENCE))


class JobError(RuntimeError):
    """The job was not accepted, or ended too early."""


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A short test run of one round; writes no document.")] = False,
) -> None:
    """Measures every scenario with and without the bound, and writes table and picture of the documents."""
    run_start = start_run()
    rounds, window_s = (1, QUICK_S) if quick else (ROUNDS, WINDOW_S)
    rows, seconds = [], dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        job = write_job(Path(folder))
        cells = [(scenario, stretch) for scenario in SCENARIOS for stretch in STRETCHES]
        for round_ in range(rounds):
            for scenario, stretch in Round(round_, rounds).rotate(cells):
                print(f"round {round_ + 1}: {scenario.model}, {format_bound(stretch)}", flush=True)
                row, series = measure(scenario, stretch, job, window_s)
                rows.append(row)
                seconds[jobs_plot.series_key(row.of)] = series
    results = publish(Publication(BLOCK, table, quick), run_start, rounds, rows, seconds=seconds)
    if not quick:
        jobs_plot.draw(results, JOB_TEXTS, IMAGES / PICTURE)


def write_job(folder: Path) -> Path:
    """Writes the job, one text per line, and returns the file."""
    path = folder / "job.ndjson"
    texts = islice(short_texts(Random(2)), JOB_TEXTS)  # noqa: S311 - texts, no secrets
    path.write_text("".join(f"{json.dumps(text)}\n" for text in texts), encoding="utf-8")
    return path


def measure(scenario: Scenario, stretch: float, job: Path, window_s: float) -> tuple[Row, dict[str, Any]]:
    """Returns latencies without and with the job, and the job's throughput; and the latencies of each second.

    Raises:
        JobError: the job was not accepted, or ended too early.
    """
    settings = {"bulk_stretch": f"{stretch:g}", "runners": str(scenario.runners)}
    with cluster(Shape(scenario.model, settings=settings)) as running:
        load = ("--rate", f"{scenario.rate:g}", "--duration", f"{window_s:g}s", "--mix", "short")
        without_job = redbatch_bench.run(running.url, *load)["measured"]
        with submitted_job(running, job) as url:
            time.sleep(SETTLE_S)
            before = JobProgress.of(running, url)
            with_job = redbatch_bench.run(running.url, *load)["measured"]
            after = JobProgress.of(running, url)
    figures = {
        "without_job_p50_ms": without_job["latency_ms"]["p50"],
        "without_job_p99_ms": without_job["latency_ms"]["p99"],
        "p50_ms": with_job["latency_ms"]["p50"],
        "p99_ms": with_job["latency_ms"]["p99"],
        "p99_ratio": with_job["latency_ms"]["p99"] / without_job["latency_ms"]["p99"],
        "job_texts_per_s": (after.done - before.done) / (after.at_s - before.at_s),
        "busy": (after.ran_s - before.ran_s) / (after.at_s - before.at_s) / scenario.runners,
        ERRORS: float(sum(without_job["errors"].values()) + sum(with_job["errors"].values())),
    }
    series = {"without_job": without_job["seconds"], "with_job": with_job["seconds"]}
    return Row(
        BLOCK, {"model": scenario.model, "rate": f"{scenario.rate:g}", "bound": format_bound(stretch)}, figures
    ), series


@contextmanager
def submitted_job(running: Cluster, job: Path) -> Iterator[str]:
    """Submits the job, and cancels it at the end of the block. Raises JobError if it is not accepted."""
    url = running.url.removesuffix("/embed")
    headers = {"Content-Type": "application/x-ndjson"}
    answer = httpx.post(f"{url}/jobs", content=job.read_bytes(), headers=headers, timeout=TIMEOUT_S)
    if answer.status_code != httpx.codes.ACCEPTED:
        raise JobError(f"the job was answered {answer.status_code}: {answer.text[:200]}")
    status_url = url + answer.json()["status_url"]
    try:
        yield status_url
    finally:
        httpx.delete(status_url, timeout=TIMEOUT_S)


def format_bound(stretch: float) -> str:
    """Returns a bound as text."""
    return "none" if stretch == UNBOUNDED else f"{stretch:g} ×"


def table(folded: Sequence[Mapping[str, Any]]) -> str:
    """Returns the figures as Markdown."""
    heads = ["model", "requests/s", "bound", "p99, ms", "p99 with job, ms", "ratio", "job, texts/s", "device busy"]
    return markdown(heads, list(_lines(folded)), left=3)


def _lines(folded: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for row in folded:
        of, figures = row["of"], {name: figure["median"] for name, figure in row["figures"].items()}
        ratio = row["figures"]["p99_ratio"]
        yield [
            *(str(of[name]) for name in ("model", "rate", "bound")),
            number(figures["without_job_p99_ms"]),
            number(figures["p99_ms"]),
            f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})",
            number(figures["job_texts_per_s"]),
            f"{figures['busy']:.0%}",
        ]


if __name__ == "__main__":
    typer.run(main)
