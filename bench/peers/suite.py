"""`make bench-peers`: Redbatch beside its peers, in one run.

python -m bench.peers.suite [--quick] [--only mosec,redbatch] [--parts null,short,mixed] [--repetitions 3]

At first each peer is tried in each of its configurations. Then come the rounds: in each, every server is started once
for each model (and configuration that was best in some cell), measured, and stopped.

A run of all servers and parts writes bench/results/peers.json and the tables of docs/performance.md. A quick one, or
one of some servers or parts, prints its tables, and leaves its results under .bench.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.failures import FAILURES, reason
from bench.generator import find_wrk
from bench.machine import ROOT, when_and_what
from bench.peers import environment, report
from bench.peers.catalogue import PEERS
from bench.peers.contest import CELLS, PARTS, REDBATCH, Cell, Choice, Failure, best
from bench.peers.planning import REDBATCH_WAYS, Turn, a_round, only_one, trials
from bench.peers.server import PeerError
from bench.peers.stand import Contender, Stand, Windows
from bench.progress import Watch
from bench.rounds import Round
from redbatch.progress import format_duration

QUICK_PATH = ROOT / ".bench" / "peers-quick.json"
PARTIAL_PATH = ROOT / ".bench" / "peers-partial.json"
IF_PARTIAL = f"Without all, results go to {PARTIAL_PATH.relative_to(ROOT)}, and tables to no document."
IF_QUICK = f"Results go to {QUICK_PATH.relative_to(ROOT)}."
NAMES = (REDBATCH, *(peer.name for peer in PEERS))
TRIAL = 0
INTERRUPTED = 130

QUICK = Windows({"null": 1, "minilm": 1}, {"null": 1, "short": 3, "mixed": 3})
TRY = Windows({"null": 1, "minilm": 2}, {"null": 1, "short": 3, "mixed": 6})


def main(
    quick: Annotated[
        bool, typer.Option("--quick", help=f"One short round, first configurations: does it work? {IF_QUICK}")
    ] = False,
    only: Annotated[str, typer.Option(help=f"Servers, with commas between them. {IF_PARTIAL}")] = ",".join(NAMES),
    parts: Annotated[str, typer.Option(help=f"Parts, with commas between them. {IF_PARTIAL}")] = ",".join(PARTS),
    repetitions: Annotated[int, typer.Option(min=1, help="Rounds; the median is what counts.")] = 3,
    seconds: Annotated[
        int, typer.Option(min=2, help="Of a measurement; with null half, and with mixed texts twice of it.")
    ] = 6,
    out: Annotated[Path | None, typer.Option(help="Write the results here, and no document.")] = None,
) -> None:
    """Measures, and exits with 1 when a server did not start, or answered wrongly."""
    chosen = _chosen("--only", only, NAMES)
    wanted = _chosen("--parts", parts, PARTS)
    cells = [cell for cell in CELLS if cell.part in wanted]
    spans = {"null": seconds // 2, "short": seconds, "mixed": 2 * seconds}
    windows = QUICK if quick else Windows({"null": 1, "minilm": 3}, spans, repetitions)
    run = when_and_what() | {"repetitions": windows.rounds}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="redbatch-bench-") as folder:
        stand = Stand(Path(folder))
        try:
            find_wrk()
            choice = contest(stand, chosen, cells, windows, quick=quick)
        except (PeerError, *FAILURES) as error:
            sys.exit(f"bench-peers: {reason(error)}")
        except KeyboardInterrupt:
            report.write(report.as_json(stand.runs, stand.failures, best(stand.runs), run), PARTIAL_PATH)
            print(f"interrupted: what was found until then is in {PARTIAL_PATH}")
            sys.exit(INTERRUPTED)
    found = report.as_json(stand.runs, stand.failures, choice, run)
    path = out or place(chosen, wanted, quick=quick)
    report.write(found, path)
    print(report.text(found))
    print(f"{format_duration(time.monotonic() - began)}; results in {path}")
    if path == report.PATH:
        report.document(found)
    sys.exit(1 if stand.failures else 0)


def place(chosen: Iterable[str], parts: Iterable[str], *, quick: bool) -> Path:
    """Returns where results go: only those of a whole run of all servers and parts replace the last such."""
    if quick:
        return QUICK_PATH
    whole = set(chosen) == set(NAMES) and set(parts) == set(PARTS)
    return report.PATH if whole else PARTIAL_PATH


def contest(stand: Stand, chosen: Sequence[str], cells: Sequence[Cell], windows: Windows, *, quick: bool) -> Choice:
    """Makes the environments, tries the configurations, runs the rounds, and returns which configurations counted."""
    peers = _peers(stand, chosen)
    stand.learn(dict.fromkeys(cell.model for cell in cells))
    given = _first(peers) if quick else [peer for peer in peers if only_one(peer)]
    if not quick:
        _take(stand, trials(peers, cells), TRY, TRIAL)
    choice = {(each.name, cell.name): each.configuration.name for each in given for cell in cells} | best(stand.runs)
    everyone = [*(REDBATCH_WAYS if REDBATCH in chosen else ()), *peers]
    for number in range(windows.rounds):
        _take(stand, a_round(everyone, cells, choice, Round(number, windows.rounds)), windows, number + 1)
    return choice


def _take(stand: Stand, turns: Sequence[Turn], windows: Windows, number: int) -> None:
    what = "trial" if number == TRIAL else f"round {number}"
    with Watch(sum(turn.seconds(windows) for turn in turns)) as watch:
        stand.say = lambda text: watch.say(f"{what}: {text}")
        for turn in turns:
            watch.begin(turn.seconds(windows))
            stand.run(turn.contender, turn.cells, windows, number)


def _peers(stand: Stand, chosen: Sequence[str]) -> list[Contender]:
    """Returns the peers whose environments are there, in all their configurations."""
    found = []
    for peer in (peer for peer in PEERS if peer.name in chosen):
        try:
            programs = environment.make(peer.folder, stand.say)
        except environment.CannotMakeError as error:
            stand.failures.append(Failure(TRIAL, peer.name, "", "", str(error)))
            continue
        found += [Contender(configuration, peer, programs) for configuration in peer.configurations]
    return found


def _first(peers: Sequence[Contender]) -> list[Contender]:
    return list({peer.name: peer for peer in reversed(peers)}.values())


def _chosen(flag: str, given: str, known: Sequence[str]) -> list[str]:
    names = given.split(",")
    if unknown := sorted(set(names) - set(known)):
        raise typer.BadParameter(f"{flag}: {', '.join(unknown)}: choose from {', '.join(known)}")
    return names


if __name__ == "__main__":
    typer.run(main)
