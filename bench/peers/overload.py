"""`make bench-overload`: offered load against what is answered in time, beside servers that take whatever comes.

python -m bench.peers.overload [--quick]

Each server has the same simulated model behind it, one batch at a time: 50 ms, and 10 ms for each input but the first.
An open loop offers from a tenth of to ten times what batches of 32 of it give. Each load finds a server that was just
started, and is measured after WARMUP_S of it, when queues have filled.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from bench.cluster import Shape, clean_environment, cluster
from bench.document import with_block
from bench.figures import Row, fold
from bench.machine import ROOT, machine, run_line, when_and_what
from bench.peers import environment
from bench.peers.asking import expected_of_null
from bench.peers.catalogue import FASTAPI, MOSEC, Configuration, Peer
from bench.peers.contest import REDBATCH
from bench.peers.report import TITLES
from bench.peers.server import Launch, serving
from bench.results import write
from bench.tables import markdown, number
from redbatch.progress import format_duration

PATH = ROOT / "bench" / "results" / "overload.json"
QUICK_PATH = ROOT / ".bench" / "overload-quick.json"
DOCUMENT = ROOT / "docs" / "reliability.md"
PICTURE = ROOT / "docs" / "images" / "overload.png"
BLOCK = "overload"

MODEL = "simulated:base_ms=50,item_ms=10"
BATCH = 32
CAPACITY = 1_000 * BATCH / (50 + 10 * (BATCH - 1))
"""Requests a second: full batches, one after the other."""

OFFERED = (0.1, 0.2, 0.5, 0.9, 1.2, 2.0, 4.0, 10.0)
TIMEOUT_MS = 2_000
WARMUP_S, WINDOW_S = 8.0, 10.0
SERVERS: Sequence[tuple[Peer | None, Configuration]] = (
    (None, Configuration(f"{BATCH}")),
    (FASTAPI, FASTAPI.configurations[1]),
    (MOSEC, MOSEC.configurations[0]),
)
COLOURS = {REDBATCH: "#cc3311", FASTAPI.name: "#4477aa", MOSEC.name: "#228833"}


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Two loads, short: does it work? No document.")] = False,
) -> None:
    """Measures all servers under all loads, and writes docs/reliability.md's table and picture."""
    began, beginning = time.monotonic(), when_and_what()
    rows = list(measure(OFFERED[2:6:3] if quick else OFFERED, 3.0 if quick else WINDOW_S))
    found = {"machine": machine(), **beginning, "repetitions": 1, "tables": [each.as_json() for each in fold(rows)]}
    write(found, QUICK_PATH if quick else PATH)
    print(f"{table(rows)}\n\n{format_duration(time.monotonic() - began)}")
    if not quick:
        publish(found)


def publish(found: Mapping[str, Any]) -> None:
    """Writes what was found into docs/reliability.md, and draws the picture beside it."""
    rows = [
        Row(BLOCK, each["of"], {name: figure["median"] for name, figure in each["figures"].items()})
        for each in found["tables"]
    ]
    block = f"{run_line(found)}.\n\n{table(rows)}\n\n![Goodput and latency under overload](images/{PICTURE.name})"
    DOCUMENT.write_text(with_block(DOCUMENT.read_text(encoding="utf-8"), BLOCK, block), encoding="utf-8")
    draw(rows, PICTURE)


def measure(offered: Sequence[float], window_s: float) -> Iterator[Row]:
    """Yields what each server did under each load, as a multiple of CAPACITY."""
    for peer, configuration in SERVERS:
        name = peer.name if peer else REDBATCH
        programs = environment.make(peer.folder, print) if peer else Path()
        for times in offered:
            print(f"{TITLES[name]}, {times:g} × {CAPACITY:.0f} requests/s", flush=True)
            with _served(peer, configuration, programs) as url, tempfile.TemporaryDirectory() as folder:
                measured = _load(url, times * CAPACITY, window_s, Path(folder) / "out.json")
            figures = {
                "offered_per_s": times * CAPACITY,
                "in_time_per_s": measured["in_time"] / measured["window_s"],
                "p99_ms": measured["latency_ms"]["p99"] or 0.0,
                "refused_share": sum(measured["errors"].get(code, 0) for code in ("overloaded", "queue_full"))
                / measured["requests"],
            }
            yield Row(BLOCK, {"server": name, "times": f"{times:g}"}, figures)


@contextmanager
def _served(peer: Peer | None, configuration: Configuration, programs: Path) -> Iterator[str]:
    if peer is None:
        with cluster(Shape(MODEL, settings={"max_batch_size": str(BATCH)})) as running:
            yield running.url
    else:
        with serving(Launch(peer, configuration, MODEL, programs), expected_of_null()) as url:
            yield url


def _load(url: str, rate: float, window_s: float, out: Path) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "redbatch", "bench", url, "--rate", str(rate), "--mix", "short"]
    command += ["--timeout-ms", str(TIMEOUT_MS), "--warmup", f"{WARMUP_S}s", "--duration", f"{window_s}s"]
    # Exit status 1: nothing was answered in the window, which here is a finding.
    subprocess.run([*command, "--out", str(out)], env=clean_environment({}), check=False, capture_output=True)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))["measured"]
    return found


def table(rows: Sequence[Row]) -> str:
    """Returns the figures as Markdown."""
    heads = ["server", "offered", "in time", "share of the possible", "p99 of answers with a vector", "refused at once"]
    lines = []
    for row in rows:
        figures = row.figures
        lines.append(
            [
                TITLES[str(row.of["server"])],
                f"{row.of['times']} × ({number(figures['offered_per_s'])}/s)",
                f"{number(figures['in_time_per_s'])}/s",
                f"{figures['in_time_per_s'] / min(CAPACITY, figures['offered_per_s']):.0%}",
                f"{number(figures['p99_ms'])} ms" if figures["p99_ms"] else "–",
                f"{figures['refused_share']:.0%}",
            ]
        )
    return markdown(heads, lines)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draws goodput and p99 against the offered load."""
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    goodput, latency = figure.subplots(1, 2)
    for name, colour in COLOURS.items():
        mine = [row.figures for row in rows if row.of["server"] == name]
        offered = [each["offered_per_s"] for each in mine]
        goodput.plot(offered, [each["in_time_per_s"] for each in mine], "o-", color=colour, label=_plain(name))
        answered = [each for each in mine if each["p99_ms"]]
        latency.plot(
            [each["offered_per_s"] for each in answered], [each["p99_ms"] for each in answered], "o-", color=colour
        )
    goodput.axhline(CAPACITY, color="#222222", linestyle=":", label="what the model can do")
    latency.axhline(TIMEOUT_MS, color="#222222", linestyle=":")
    goodput.set(
        title="Answered within 2 s", xlabel="offered, requests/s", ylabel="requests/s", xscale="log", ylim=(0, None)
    )
    latency.set(title="p99 of answers with a vector (dotted: the deadline)", xlabel="offered, requests/s", ylabel="ms")
    latency.set(xscale="log", yscale="log")
    for axis in (goodput.xaxis, latency.xaxis, latency.yaxis):
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())
    goodput.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130, metadata={"Software": None})


def _plain(name: str) -> str:
    return TITLES[name].replace("`", "")


if __name__ == "__main__":
    typer.run(main)
