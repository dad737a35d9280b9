"""`make bench-jobs`: what a large job costs those who ask beside it, and what it gets.

python -m bench.jobs [--quick]

Requests with a short text come by chance (Poisson), first alone, then beside a job of JOB_TEXTS texts. Once with the
bound on how long a batch may take with bulk in it (`bulk_stretch`, as it is by default), and once without.
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
from bench.publication import OwnBlock, begin, publish
from bench.rounds import Round
from bench.step import ERRORS
from bench.tables import markdown, number
from gpuworker.settings import WorkerSettings
from redbatch.bench.texts import short

BLOCK = "jobs"
PICTURE = "jobs.png"

JOB_TEXTS = 100_000
UNBOUNDED = 1_000.0
STRETCHES = (WorkerSettings.model_fields["bulk_stretch"].default, UNBOUNDED)
ROUNDS = 3
WINDOW_S, QUICK_S = 12.0, 5.0
SETTLE_S = 2.0
"""How long the job runs before it is measured what it does."""
TIMEOUT_S = 60.0
INFERENCE = "redbatch_batch_inference_seconds_sum"


@dataclass(frozen=True, slots=True)
class Scene:
    """A model, how many of its batches run at once, and the requests a second that come beside the job."""

    model: str
    runners: int
    rate: float


SCENES = (Scene("simulated:base_ms=10,item_ms=0.2", 1, 300), Scene("minilm", 2, 30))
"""Requests alone keep the first model busy, with batches of three. One alone has both cores of MiniLM."""


class Progress(NamedTuple):
    """How far a job is, and how long batches have run, at a time (s)."""

    at: float
    done: int
    ran_s: float

    @classmethod
    def of(cls, running: Cluster, status_url: str) -> Self:
        """Looks now. Raises JobError when all of the job has ended."""
        told = httpx.get(status_url, timeout=TIMEOUT_S).json()
        if told["status"] not in ("queued", "running"):
            raise JobError(f"the job is {told['status']}: it should have run to the end of what was measured")
        return cls(time.monotonic(), told["done"], running.metric("worker", INFERENCE))


class JobError(RuntimeError):
    """The job was not taken, or ended too early."""


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One round, short: does it work? No document.")] = False,
) -> None:
    """Measures every scene with and without the bound, and writes docs/performance.md's table and picture."""
    begun = begin()
    rounds, window_s = (1, QUICK_S) if quick else (ROUNDS, WINDOW_S)
    rows, seconds = [], dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(Path(folder))
        cells = [(scene, stretch) for scene in SCENES for stretch in STRETCHES]
        for round_ in range(rounds):
            for scene, stretch in Round(round_, rounds).turns(cells):
                print(f"round {round_ + 1}: {scene.model}, {bound_of(stretch)}", flush=True)
                row, course = measure(scene, stretch, job, window_s)
                rows.append(row)
                seconds[jobs_plot.course_of(row.of)] = course
    found = publish(OwnBlock(BLOCK, table, quick), begun, rounds, rows, seconds=seconds)
    if not quick:
        jobs_plot.draw(found, JOB_TEXTS, IMAGES / PICTURE)


def job_of(folder: Path) -> Path:
    """Writes the job, a text a line, and returns the file."""
    path = folder / "job.ndjson"
    texts = islice(short(Random(2)), JOB_TEXTS)  # noqa: S311 - texts, no secrets
    path.write_text("".join(f"{json.dumps(text)}\n" for text in texts), encoding="utf-8")
    return path


def measure(scene: Scene, stretch: float, job: Path, window_s: float) -> tuple[Row, dict[str, Any]]:
    """Returns what requests got alone and beside the job, with what the job got; and both second by second.

    Raises:
        JobError: there was no job beside them.
    """
    settings = {"bulk_stretch": f"{stretch:g}", "runners": str(scene.runners)}
    with cluster(Shape(scene.model, settings=settings)) as running:
        load = ("--rate", f"{scene.rate:g}", "--duration", f"{window_s:g}s", "--mix", "short")
        alone = redbatch_bench.run(running.url, *load)["measured"]
        with submitted(running, job) as url:
            time.sleep(SETTLE_S)
            before = Progress.of(running, url)
            beside = redbatch_bench.run(running.url, *load)["measured"]
            after = Progress.of(running, url)
    figures = {
        "alone_p50_ms": alone["latency_ms"]["p50"],
        "alone_p99_ms": alone["latency_ms"]["p99"],
        "p50_ms": beside["latency_ms"]["p50"],
        "p99_ms": beside["latency_ms"]["p99"],
        "p99_ratio": beside["latency_ms"]["p99"] / alone["latency_ms"]["p99"],
        "job_texts_per_s": (after.done - before.done) / (after.at - before.at),
        "busy": (after.ran_s - before.ran_s) / (after.at - before.at) / scene.runners,
        ERRORS: float(sum(alone["errors"].values()) + sum(beside["errors"].values())),
    }
    course = {"alone": alone["seconds"], "beside": beside["seconds"]}
    return Row(BLOCK, {"model": scene.model, "rate": f"{scene.rate:g}", "bound": bound_of(stretch)}, figures), course


@contextmanager
def submitted(running: Cluster, job: Path) -> Iterator[str]:
    """Submits the job, and cancels it at the end of the block. Raises JobError when it is not taken."""
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


def bound_of(stretch: float) -> str:
    """Names a bound."""
    return "none" if stretch == UNBOUNDED else f"{stretch:g} ×"


def table(folded: Sequence[Mapping[str, Any]]) -> str:
    """Returns the figures as Markdown."""
    heads = ["model", "requests/s", "bound", "p99 alone, ms", "p99 beside, ms", "ratio", "job, texts/s", "device busy"]
    return markdown(heads, list(_lines(folded)), left=3)


def _lines(folded: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for row in folded:
        of, figures = row["of"], {name: figure["median"] for name, figure in row["figures"].items()}
        ratio = row["figures"]["p99_ratio"]
        yield [
            *(str(of[name]) for name in ("model", "rate", "bound")),
            number(figures["alone_p99_ms"]),
            number(figures["p99_ms"]),
            f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})",
            number(figures["job_texts_per_s"]),
            f"{figures['busy']:.0%}",
        ]


if __name__ == "__main__":
    typer.run(main)
