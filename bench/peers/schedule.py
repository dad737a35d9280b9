"""In which order which server is started to measure what. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.peers.catalogue import Configuration
from bench.peers.comparison import GATEWAYS, ONE_GATEWAY, REDBATCH, TWO_GATEWAYS, Cell, Choice
from bench.peers.testbed import Contender, Windows
from bench.rounds import Round

REDBATCH_WAYS = (Contender(Configuration(ONE_GATEWAY)), Contender(Configuration(TWO_GATEWAYS)))
AROUND_START_S = {"null": 5.0, "minilm": 13.0}
AROUND_WINDOW_S = {"null": 2.0, "minilm": 5.0}
"""What takes time beside the windows, about: a start, a warmup's ends and a stop; connections, a lead and a tail."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A server that is started to measure some cells of one model."""

    contender: Contender
    cells: Sequence[Cell]

    def seconds(self, windows: Windows) -> float:
        """Returns about how long it takes."""
        model = self.cells[0].model
        start_s = AROUND_START_S[model] + windows.warmup_s[model]
        return start_s + sum(AROUND_WINDOW_S[model] + windows.window_s[cell.part] for cell in self.cells)


def trials(peers: Iterable[Contender], cells: Sequence[Cell]) -> list[Turn]:
    """Returns the turns in which each peer is tried in each of its configurations, where it has more than one."""
    return [turn for peer in peers if not only_one(peer) for turn in _turns(peer, cells)]


def only_one(contender: Contender) -> bool:
    """Whether there is no choice."""
    return contender.peer is not None and len(contender.peer.configurations) == 1


def a_round(contenders: Sequence[Contender], cells: Sequence[Cell], choice: Choice, which: Round) -> list[Turn]:
    """Returns the turns of a round: each server in what counts for a cell, model by model. Rounds begin elsewhere."""
    models = list(dict.fromkeys(cell.model for cell in cells))
    found: list[Turn] = []
    for model in models:
        turns = [
            turn
            for contender in contenders
            for turn in _turns(
                contender, [cell for cell in cells if cell.model == model and counts(contender, cell, choice)]
            )
        ]
        found += which.turns(turns)
    return found


def counts(contender: Contender, cell: Cell, choice: Choice) -> bool:
    """Whether a server in this configuration is measured in a cell."""
    if contender.name == REDBATCH:
        return contender.configuration.name in (ONE_GATEWAY, GATEWAYS.get(cell.name))
    return choice.get((contender.name, cell.name)) == contender.configuration.name


def _turns(contender: Contender, cells: Sequence[Cell]) -> Iterator[Turn]:
    for model in contender.peer.models if contender.peer else dict.fromkeys(cell.model for cell in cells):
        if mine := [cell for cell in cells if cell.model == model]:
            yield Turn(contender, mine)
