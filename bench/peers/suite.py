"""`make bench-peers`: compares Redbatch with its peers in one run.

python -m bench.peers.suite [--quick] [--only mosec,redbatch] [--parts null,short,mixed] [--repetitions 3]

First, each peer is tried in each of its configurations. In the rounds that follow, every server is started once per
model (and per configuration that was best in a cell), measured, and stopped.

A run of all servers and parts writes bench/results/peers.json and the tables of the documents. A quick run, or a
run of some servers or parts, prints its tables, and writes its results under .bench.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.failures import FAILURES, reason
from bench.flags import parse_names
from bench.machine import ROOT, run_metadata
from bench.peers import environment, report
from bench.peers.catalogue import PEERS
from bench.peers.comparison import CELLS, PARTS, REDBATCH, BestConfigurations, Cell, Failure, best_configurations
from bench.peers.schedule import REDBATCH_CANDIDATES, ServerRun, has_one_configuration, plan_round, plan_trials
from bench.peers.server import PeerError
from bench.peers.testbed import Candidate, Testbed, Windows
from bench.progress import BenchmarkProgress
from bench.rounds import Round
from bench.wrk import find_wrk
from redbatch.times import format_duration

QUICK_PATH = ROOT / ".bench" / "peers-quick.json"
PARTIAL_PATH = ROOT / ".bench" / "peers-partial.json"
IF_PARTIAL = f"If some are missing, results go to {PARTIAL_PATH.relative_to(ROOT)}, and no document is written."
QUICK_HELP = (
    f"A short test run of one round with the first configurations. Results go to {QUICK_PATH.relative_to(ROOT)}."
)
SECONDS_HELP = "Length of a measurement; half of it with the null model, and twice with mixed texts."
NAMES = (REDBATCH, *(peer.name for peer in PEERS))
TRIAL = 0
INTERRUPTED = 130

QUICK = Windows({"null": 1, "minilm": 1}, {"null": 1, "short": 3, "mixed": 3})
TRIAL_WINDOWS = Windows({"null": 1, "minilm": 2}, {"null": 1, "short": 3, "mixed": 6})


def main(
    quick: Annotated[bool, typer.Option("--quick", help=QUICK_HELP)] = False,
    only: Annotated[str, typer.Option(help=f"Servers, separated by commas. {IF_PARTIAL}")] = ",".join(NAMES),
    parts: Annotated[str, typer.Option(help=f"Parts, separated by commas. {IF_PARTIAL}")] = ",".join(PARTS),
    repetitions: Annotated[int, typer.Option(min=1, help="Number of rounds; the tables have the medians.")] = 3,
    seconds: Annotated[int, typer.Option(min=2, help=SECONDS_HELP)] = 6,
    out: Annotated[Path | None, typer.Option(help="Write the results to this file, and no document.")] = None,
) -> None:
    """Measures, and exits with 1 if a server did not start or gave a wrong answer."""
    chosen = parse_names("--only", only, NAMES)
    wanted = parse_names("--parts", parts, PARTS)
    cells = [cell for cell in CELLS if cell.part in wanted]
    spans = {"null": seconds // 2, "short": seconds, "mixed": 2 * seconds}
    windows = QUICK if quick else Windows({"null": 1, "minilm": 3}, spans, repetitions)
    run = run_metadata() | {"repetitions": windows.rounds}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="redbatch-bench-") as folder:
        testbed = Testbed(Path(folder))
        try:
            find_wrk()
            choice = compare(testbed, chosen, cells, windows, quick=quick)
        except (PeerError, *FAILURES) as error:
            sys.exit(f"bench-peers: {reason(error)}")
        except KeyboardInterrupt:
            _write_partial(testbed, run)
            sys.exit(INTERRUPTED)
    results = report.as_json(testbed.runs, testbed.failures, choice, run)
    path = out or results_path(chosen, wanted, quick=quick)
    report.write(results, path)
    print(report.text(results))
    print(f"{format_duration(time.monotonic() - began)}; results in {path}")
    if path == report.PATH:
        report.document(results)
    sys.exit(1 if testbed.failures else 0)


def _write_partial(testbed: Testbed, run: Mapping[str, Any]) -> None:
    choice = best_configurations(testbed.runs)
    report.write(report.as_json(testbed.runs, testbed.failures, choice, run), PARTIAL_PATH)
    print(f"interrupted: the results so far are in {PARTIAL_PATH}")


def results_path(chosen: Iterable[str], parts: Iterable[str], *, quick: bool) -> Path:
    """Returns the file of results. Only a full run of all servers and parts replaces the last full results."""
    if quick:
        return QUICK_PATH
    whole = set(chosen) == set(NAMES) and set(parts) == set(PARTS)
    return report.PATH if whole else PARTIAL_PATH


def compare(
    testbed: Testbed, chosen: Sequence[str], cells: Sequence[Cell], windows: Windows, *, quick: bool
) -> BestConfigurations:
    """Creates the environments, tries the configurations, runs the rounds, and returns the best configurations."""
    peers = _peers(testbed, chosen)
    testbed.compute_expected(dict.fromkeys(cell.model for cell in cells))
    fixed = _first(peers) if quick else [peer for peer in peers if has_one_configuration(peer)]
    if not quick:
        _measure(testbed, plan_trials(peers, cells), TRIAL_WINDOWS, TRIAL)
    choice = {
        (each.name, cell.name): each.configuration.name for each in fixed for cell in cells
    } | best_configurations(testbed.runs)
    candidates = [*(REDBATCH_CANDIDATES if REDBATCH in chosen else ()), *peers]
    for number in range(windows.rounds):
        _measure(testbed, plan_round(candidates, cells, choice, Round(number, windows.rounds)), windows, number + 1)
    return choice


def _measure(testbed: Testbed, runs: Sequence[ServerRun], windows: Windows, number: int) -> None:
    label = "trial" if number == TRIAL else f"round {number}"
    with BenchmarkProgress(sum(run.seconds(windows) for run in runs)) as bar:
        testbed.show = lambda text: bar.show(f"{label}: {text}")
        for run in runs:
            bar.begin(run.seconds(windows))
            testbed.run(run.candidate, run.cells, windows, number)


def _peers(testbed: Testbed, chosen: Sequence[str]) -> list[Candidate]:
    """Returns the peers whose environments could be created, in all their configurations."""
    candidates = []
    for peer in (peer for peer in PEERS if peer.name in chosen):
        try:
            programs = environment.make(peer.folder, testbed.show)
        except environment.EnvironmentBuildError as error:
            testbed.failures.append(Failure(TRIAL, peer.name, "", "", str(error)))
            continue
        candidates += [Candidate(configuration, peer, programs) for configuration in peer.configurations]
    return candidates


def _first(peers: Sequence[Candidate]) -> list[Candidate]:
    return list({peer.name: peer for peer in reversed(peers)}.values())


if __name__ == "__main__":
    typer.run(main)
