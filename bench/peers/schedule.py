"""The order in which servers are started, and the cells that each run measures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.peers.catalogue import Configuration
from bench.peers.comparison import GATEWAYS, ONE_GATEWAY, REDBATCH, TWO_GATEWAYS, BestConfigurations, Cell
from bench.peers.testbed import Candidate, Windows
from bench.rounds import Round

REDBATCH_CANDIDATES = (Candidate(Configuration(ONE_GATEWAY)), Candidate(Configuration(TWO_GATEWAYS)))
START_OVERHEAD_S = {"null": 5.0, "minilm": 13.0}
WINDOW_OVERHEAD_S = {"null": 2.0, "minilm": 5.0}
"""Estimated time in addition to the windows: per start (with the ends of the warm-up, and the stop), and per window
(with connections, lead and tail)."""


@dataclass(frozen=True, slots=True)
class ServerRun:
    """A server that is started to measure some cells of one model."""

    candidate: Candidate
    cells: Sequence[Cell]

    def seconds(self, windows: Windows) -> float:
        """Returns the estimated duration."""
        model = self.cells[0].model
        start_s = START_OVERHEAD_S[model] + windows.warmup_s[model]
        return start_s + sum(WINDOW_OVERHEAD_S[model] + windows.window_s[cell.part] for cell in self.cells)


def plan_trials(peers: Iterable[Candidate], cells: Sequence[Cell]) -> list[ServerRun]:
    """Returns runs of each configuration of each peer that has several."""
    return [run for peer in peers if not has_one_configuration(peer) for run in _runs(peer, cells)]


def has_one_configuration(candidate: Candidate) -> bool:
    """Returns whether the peer of a candidate has a single configuration."""
    return candidate.peer is not None and len(candidate.peer.configurations) == 1


def plan_round(
    candidates: Sequence[Candidate], cells: Sequence[Cell], choice: BestConfigurations, round_: Round
) -> list[ServerRun]:
    """Returns the runs of a round: each server in its best configurations, model by model, rotated by the round."""
    models = list(dict.fromkeys(cell.model for cell in cells))
    planned: list[ServerRun] = []
    for model in models:
        runs = [
            run
            for candidate in candidates
            for run in _runs(
                candidate, [cell for cell in cells if cell.model == model and is_measured(candidate, cell, choice)]
            )
        ]
        planned += round_.rotate(runs)
    return planned


def is_measured(candidate: Candidate, cell: Cell, choice: BestConfigurations) -> bool:
    """Returns whether a server in this configuration is measured in a cell."""
    if candidate.name == REDBATCH:
        return candidate.configuration.name in (ONE_GATEWAY, GATEWAYS.get(cell.name))
    return choice.get((candidate.name, cell.name)) == candidate.configuration.name


def _runs(candidate: Candidate, cells: Sequence[Cell]) -> Iterator[ServerRun]:
    for model in candidate.peer.models if candidate.peer else dict.fromkeys(cell.model for cell in cells):
        if its_cells := [cell for cell in cells if cell.model == model]:
            yield ServerRun(candidate, its_cells)
