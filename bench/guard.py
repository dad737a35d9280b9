"""`make bench-guard`: compares the speed of this checkout with that of an earlier commit, in turns, in two minutes.

python -m bench.guard [--against v0.1.0] [--rounds 12] [--clients 64]

Two clusters of the model `null` are up at a time, one of each commit, and get load by turns. Both use the packages that
are installed here.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from bench.cluster import Cluster, ClusterError, Shape, cluster
from bench.failures import FAILURES, reason
from bench.machine import ROOT
from bench.measurement import ClosedLoop, Measurement, measure
from bench.wrk import find_wrk, write_mix
from redbatch.up.local_redis import find_server

MIN_RATIO = 0.95
"""Median of the ratios of requests a second below which the run fails: the noise of two minutes is below 5 %."""

WARM_UP_S = 3.0
WINDOW_S = 3.0


class UnknownCommitError(RuntimeError):
    """There is no such commit to compare with; the message says what to pass."""


@dataclass(slots=True)
class Comparison:
    """Measurements of both commits; the items of the same index were measured one after the other."""

    reference: list[Measurement] = field(default_factory=list)
    present: list[Measurement] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Requests a second of this checkout over those of the reference, in each round."""
        pairs = zip(self.reference, self.present, strict=True)
        return [present.requests_per_s / reference.requests_per_s for reference, present in pairs]

    @property
    def ratio(self) -> float:
        """The median of these."""
        return median(self.ratios)

    @property
    def passes(self) -> bool:
        """Whether this checkout is fast enough."""
        return self.ratio >= MIN_RATIO


def main(
    against: Annotated[str, typer.Option(help="Tag or commit to compare with; by default the last release.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Number of measurements of each.")] = 12,
    clients: Annotated[int, typer.Option(min=1, help="Number of requests in flight.")] = 64,
) -> None:
    """Measures, and exits with 0, or with 1 if this checkout is slower than the reference allows."""
    comparison = Comparison()
    try:
        find_wrk()
        find_server()
        reference = against or last_release()
        with _checkout(reference) as root, _cluster(ROOT) as present, _cluster(root) as other:
            _measure(comparison, {"reference": other, "present": present}, rounds, clients)
    except (*FAILURES, UnknownCommitError) as error:
        sys.exit(f"bench-guard: {reason(error)}")
    for line in report(comparison, reference):
        print(line)
    sys.exit(0 if comparison.passes else 1)


def last_release() -> str:
    """Returns the newest tag of a release below this checkout. Raises UnknownCommitError if there is none."""
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        raise UnknownCommitError("there is no release (a tag v*) to compare with: pass ARGS='--against COMMIT'")
    return found.stdout.strip()


@contextmanager
def _checkout(commit: str) -> Iterator[Path]:
    """Provides the files of a commit in a folder, until the end of the block. Raises UnknownCommitError."""
    command = ["git", "archive", commit]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        raise UnknownCommitError(archive.stderr.decode(errors="replace").strip())
    with tempfile.TemporaryDirectory(prefix="redbatch-guard-") as folder:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


@contextmanager
def _cluster(root: Path) -> Iterator[Cluster]:
    with cluster(Shape("null"), root) as running:
        yield running


def _measure(comparison: Comparison, clusters: Mapping[str, Cluster], rounds: int, clients: int) -> None:
    with tempfile.TemporaryDirectory(prefix="redbatch-guard-") as folder:
        bodies = write_mix("short", Path(folder))
        loop = ClosedLoop(clients, WINDOW_S, warmup_s=0)
        for one in clusters.values():
            measure(one, bodies, ClosedLoop(clients, WARM_UP_S, warmup_s=0))
        for number in range(rounds):
            names = sorted(clusters, reverse=bool(number % 2))
            measured = {name: measure(clusters[name], bodies, loop) for name in names}
            for name, each in measured.items():
                if each.load.errors:
                    raise ClusterError(f"{name}: {each.load.errors} requests failed")
            comparison.reference.append(measured["reference"])
            comparison.present.append(measured["present"])
            print(f"round {number + 1} of {rounds}: {comparison.ratios[-1]:.3f}", flush=True)


def report(comparison: Comparison, reference: str) -> list[str]:
    """Returns the medians of both, the CPU of each role in microseconds a request, and the verdict, as lines."""
    lines = [f"{'':>14} {reference[:12]:>12} {'here':>12} {'ratio':>7}"]
    lines.append(_row("requests/s", *([each.requests_per_s for each in side] for side in _sides(comparison))))
    for role in comparison.present[0].cost.cpu_us:
        cost = ([each.cost.cpu_us.get(role, 0.0) for each in side] for side in _sides(comparison))
        lines.append(_row(f"{role}, µs", *cost))
    verdict = "passed" if comparison.passes else f"FAILED: it must be at least {MIN_RATIO}"
    low, high = min(comparison.ratios), max(comparison.ratios)
    return [*lines, f"median of the ratios {comparison.ratio:.3f} ({low:.2f} to {high:.2f}): {verdict}"]


def _sides(comparison: Comparison) -> tuple[list[Measurement], list[Measurement]]:
    return comparison.reference, comparison.present


def _row(name: str, reference: list[float], present: list[float]) -> str:
    before, now = median(reference), median(present)
    return f"{name:>14} {before:>12,.1f} {now:>12,.1f} {now / before if before else 0:>7.3f}"


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
