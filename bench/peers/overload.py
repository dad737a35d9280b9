"""`make bench-overload`: offered load and timely answers, compared with servers that accept every request.

python -m bench.peers.overload [--quick]

Each server runs the same simulated model, one batch at a time: 50 ms, and 10 ms for each input but the first. An open
loop offers from a tenth to ten times the capacity of batches of 32. Each load starts with a new server, and is measured
after WARMUP_S, when queues have filled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from bench import redbatch_bench
from bench.cluster import Shape, cluster
from bench.document import replace_block
from bench.figures import Row, fold
from bench.machine import ROOT, describe_run, machine, run_metadata
from bench.peers import environment
from bench.peers.catalogue import FASTAPI, MOSEC, Configuration, Peer
from bench.peers.comparison import REDBATCH
from bench.peers.protocol import expected_null_vector
from bench.peers.report import TITLES
from bench.peers.server import Launch, serving
from bench.results import FOLDER, write
from bench.tables import markdown, number
from redbatch.bench.plot_style import BLACK, BLUE, GREEN, RED, legend, new_figure, plain_numbers, save
from redbatch.times import format_duration

PATH = FOLDER / "overload.json"
QUICK_PATH = ROOT / ".bench" / "overload-quick.json"
DOCUMENT = ROOT / "docs" / "reliability.md"
PICTURE = ROOT / "docs" / "images" / "overload.png"
BLOCK = "overload"

MODEL = "simulated:base_ms=50,item_ms=10"
BATCH = 32
CAPACITY = 1_000 * BATCH / (50 + 10 * (BATCH - 1))
"""Requests per second in full batches, one after the other."""

OFFERED = (0.1, 0.2, 0.5, 0.9, 1.2, 2.0, 4.0, 10.0)
TIMEOUT_MS = 2_000
WARMUP_S, WINDOW_S = 8.0, 10.0
SERVERS: Sequence[tuple[Peer | None, Configuration]] = (
    (None, Configuration(f"{BATCH}")),
    (FASTAPI, FASTAPI.configurations[1]),
    (MOSEC, MOSEC.configurations[0]),
)
COLORS = {REDBATCH: RED, FASTAPI.name: BLUE, MOSEC.name: GREEN}


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A short test run of two loads; writes no document.")] = False,
) -> None:
    """Measures all servers under all loads, and writes the table and the picture of docs/reliability.md."""
    began, metadata = time.monotonic(), run_metadata()
    rows = list(measure(OFFERED[2:6:3] if quick else OFFERED, 3.0 if quick else WINDOW_S))
    results = {"machine": machine(), **metadata, "repetitions": 1, "tables": [each.as_json() for each in fold(rows)]}
    write(results, QUICK_PATH if quick else PATH)
    print(f"{table(rows)}\n\n{format_duration(time.monotonic() - began)}")
    if not quick:
        publish(results)


def publish(results: Mapping[str, Any]) -> None:
    """Writes the table into docs/reliability.md, and draws its picture."""
    rows = [
        Row(BLOCK, each["of"], {name: figure["median"] for name, figure in each["figures"].items()})
        for each in results["tables"]
    ]
    block = f"{describe_run(results)}.\n\n{table(rows)}\n\n![Goodput and latency under overload](images/{PICTURE.name})"
    DOCUMENT.write_text(replace_block(DOCUMENT.read_text(encoding="utf-8"), BLOCK, block), encoding="utf-8")
    draw(rows, PICTURE)


def measure(offered: Sequence[float], window_s: float) -> Iterator[Row]:
    """Yields a row for each server under each load. Loads are multiples of CAPACITY."""
    for peer, configuration in SERVERS:
        name = peer.name if peer else REDBATCH
        programs = environment.make(peer.folder, print) if peer else Path()
        for times in offered:
            print(f"{TITLES[name]}, {times:g} × {CAPACITY:.0f} requests/s", flush=True)
            with _served(peer, configuration, programs) as url:
                measured = _load(url, times * CAPACITY, window_s)
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
        with serving(Launch(peer, configuration, MODEL, programs), expected_null_vector()) as url:
            yield url


def _load(url: str, rate: float, window_s: float) -> dict[str, Any]:
    load = ["--rate", str(rate), "--mix", "short", "--timeout-ms", str(TIMEOUT_MS)]
    load += ["--warmup", f"{WARMUP_S}s", "--duration", f"{window_s}s"]
    # Nothing may be answered in the window, which is a result here.
    measured: dict[str, Any] = redbatch_bench.run(url, *load, may_fail=True)["measured"]
    return measured


def table(rows: Sequence[Row]) -> str:
    """Returns the figures as Markdown."""
    heads = ["server", "offered", "in time", "share of the maximum", "p99 of answers with a vector", "refused at once"]
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
    figure = new_figure(10.0, 4.2)
    goodput, latency = figure.subplots(1, 2)
    for name, color in COLORS.items():
        own_rows = [row.figures for row in rows if row.of["server"] == name]
        offered = [each["offered_per_s"] for each in own_rows]
        goodput.plot(offered, [each["in_time_per_s"] for each in own_rows], "o-", color=color, label=_plain(name))
        answered = [each for each in own_rows if each["p99_ms"]]
        latency.plot(
            [each["offered_per_s"] for each in answered], [each["p99_ms"] for each in answered], "o-", color=color
        )
    goodput.axhline(CAPACITY, color=BLACK, linestyle=":", label="capacity of the model")
    latency.axhline(TIMEOUT_MS, color=BLACK, linestyle=":")
    goodput.set(
        title="Answered within 2 s", xlabel="offered, requests/s", ylabel="requests/s", xscale="log", ylim=(0, None)
    )
    latency.set(title="p99 of answers with a vector (dotted: the deadline)", xlabel="offered, requests/s", ylabel="ms")
    latency.set(xscale="log", yscale="log")
    for axis in (goodput.xaxis, latency.xaxis, latency.yaxis):
        plain_numbers(axis)
    legend(goodput, "best")
    save(figure, path)


def _plain(name: str) -> str:
    return TITLES[name].replace("`", "")


if __name__ == "__main__":
    typer.run(main)
