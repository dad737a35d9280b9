"""The measurements, the best configuration of each peer, and the ratios to Redbatch. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

REDBATCH = "redbatch"
ONE_GATEWAY = "1 gateway"
TWO_GATEWAYS = "2 gateways"


@dataclass(frozen=True, slots=True)
class Cell:
    """A measurement of each server: a model, a number of clients, and the mix of texts that they send."""

    part: str
    model: str
    mix: str
    clients: int

    @property
    def name(self) -> str:
        """Name in the results."""
        return f"{self.part}-{self.clients}"


CELLS = (
    Cell("null", "null", "short", 1),
    Cell("null", "null", "short", 64),
    Cell("null", "null", "short", 256),
    Cell("short", "minilm", "short", 64),
    Cell("mixed", "minilm", "mixed", 64),
)
PARTS = ("null", "short", "mixed")
GATEWAYS: Mapping[str, str] = {"null-256": TWO_GATEWAYS}
"""The configuration of Redbatch that is compared in a cell, if it is not the one with a single gateway."""


@dataclass(frozen=True, slots=True)
class Run:
    """Results of a server in one round (0: the trial before the rounds): figures by name; names end in units."""

    round: int
    server: str
    configuration: str
    cell: str
    figures: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.figures["requests_per_s"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A server that did not start or gave a wrong answer, with the reason."""

    round: int
    server: str
    configuration: str
    model: str
    reason: str


BestConfigurations = Mapping[tuple[str, str], str]
"""The best configuration by server and cell."""


def best_configurations(trials: Iterable[Run]) -> dict[tuple[str, str], str]:
    """Returns the configuration with the highest rate; one without failed requests precedes all others."""
    best: dict[tuple[str, str], Run] = {}
    for run in trials:
        place = (run.server, run.cell)
        if place not in best or _rank(run) > _rank(best[place]):
            best[place] = run
    return {place: run.configuration for place, run in best.items()}


def _rank(run: Run) -> tuple[bool, float]:
    return run.figures["errors"] == 0, run.rate


def ratios(runs: Sequence[Run], choice: BestConfigurations) -> dict[tuple[str, str], list[float]]:
    """Returns Redbatch's rate divided by the peer's, by peer and cell, for each round that has both."""
    ours = {
        (run.round, run.cell): run.rate
        for run in runs
        if run.server == REDBATCH and run.configuration == GATEWAYS.get(run.cell, ONE_GATEWAY)
    }
    by_peer: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        place = (run.server, run.cell)
        counts = run.server != REDBATCH and choice.get(place) == run.configuration and run.rate > 0
        if counts and (run.round, run.cell) in ours:
            by_peer.setdefault(place, []).append(ours[run.round, run.cell] / run.rate)
    return by_peer
