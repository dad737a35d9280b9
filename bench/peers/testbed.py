"""Runs one server of the contest, and measures some cells on it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from bench.cluster import Shape, clean_environment, cluster
from bench.cost import Processes
from bench.failures import FAILURES, reason
from bench.machine import ROOT
from bench.measurement import ClosedLoop, Measured, measure
from bench.peers import protocol
from bench.peers.catalogue import Configuration, Peer
from bench.peers.comparison import ONE_GATEWAY, REDBATCH, TWO_GATEWAYS, Cell, Failure, Run
from bench.peers.server import Launch, PeerError, post, serving
from bench.step import ERRORS, figures_of
from bench.wrk import warm_up, write_bodies
from redbatch.bench.texts import built_in

GATEWAYS = {ONE_GATEWAY: 1, TWO_GATEWAYS: 2}
WARMUP_CLIENTS = 64
LEAD_S = {"null": 0.5, "minilm": 2.0}
TAIL_S = {"null": 0.5, "minilm": 2.0}
"""Load before and after the window. A slow server answers a batch in a second or two, and a window must not end after
the last of them."""

TEXTS = {"short": (1, 4_096), "mixed": (7, 256)}
"""Seed and number of the texts of a mix. A slow server is through the mixed ones twice in a window: all servers do the
same work. These have the mean length of the mix."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How long a measurement is, in seconds: an unmeasured load after the start, by model, and the window, by part.

    And in how many rounds.
    """

    warmup_s: Mapping[str, float]
    window_s: Mapping[str, float]
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class Alone:
    """A server of which only answers are looked at: not its processes, not its Redis."""

    url: str
    redis: None = None

    @staticmethod
    def processes() -> Processes:
        """Returns none."""
        return {}


@dataclass(frozen=True, slots=True)
class Contender:
    """A server in one configuration: Redbatch, or a peer whose environment is made."""

    configuration: Configuration
    peer: Peer | None = None
    programs: Path = Path()

    @property
    def name(self) -> str:
        """For the results."""
        return self.peer.name if self.peer else REDBATCH

    @property
    def form(self) -> str:
        """Of its requests."""
        return self.peer.body if self.peer else "text"


@dataclass(slots=True)
class Stand:
    """What all measurements share.

    Attributes:
        folder: for the bodies of requests.
        say: is told what runs now.
        runs: what was found.
        failures: what could not be.
        expected: the right vector of the probe, by model.
    """

    folder: Path
    say: Callable[[str], None] = print
    runs: list[Run] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    expected: dict[str, protocol.Vector] = field(default_factory=dict)

    def run(self, contender: Contender, cells: Sequence[Cell], windows: Windows, number: int) -> None:
        """Starts a server, measures these cells of one model on it, and stops it. What fails is written down."""
        model, title = cells[0].model, f"{contender.name} ({contender.configuration.name})"
        self.say(f"{title}, {model}: starts")
        try:
            with self._serving(contender, model) as url:
                texts = self._bodies(cells[0].mix, contender.form)
                warm_up(url, texts, clients=WARMUP_CLIENTS, seconds=windows.warmup_s[model])
                for cell in cells:
                    self.say(f"{title}, {cell.part}, {cell.clients} client{'s' if cell.clients > 1 else ''}")
                    self.runs.append(self._measured(contender, url, cell, windows, number))
        except (PeerError, protocol.WrongAnswer, *FAILURES) as error:
            failure = Failure(number, contender.name, contender.configuration.name, model, reason(error))
            self.failures.append(failure)
            self.say(f"{title}, {model}: FAILED: {failure.reason}")

    def learn(self, models: Iterable[str]) -> None:
        """Finds out which vectors are right: of the real model those of `encode`. Raises PeerError."""
        for model in models:
            self.say(f"{model}: what the vector of the probe is")
            self.expected[model] = protocol.expected_of_null() if model == "null" else _encoded()

    @contextmanager
    def _serving(self, contender: Contender, model: str) -> Iterator[str]:
        if contender.peer is None:
            with cluster(Shape(model, gateways=GATEWAYS[contender.configuration.name])) as running:
                protocol.check(model, protocol.vector_of("text", post(running.url, "text")), self.expected[model])
                yield running.url
            return
        launch = Launch(contender.peer, contender.configuration, model, contender.programs)
        with serving(launch, self.expected[model]) as url:
            yield url

    def _measured(self, contender: Contender, url: str, cell: Cell, windows: Windows, number: int) -> Run:
        lead_s, tail_s = LEAD_S[cell.model], TAIL_S[cell.model]
        loop = ClosedLoop(cell.clients, windows.window_s[cell.part], lead_s, warmup_s=0, tail_s=tail_s)
        figures = of_right_answers(measure(Alone(url), self._bodies(cell.mix, contender.form), loop))
        return Run(number, contender.name, contender.configuration.name, cell.name, figures)

    def _bodies(self, mix: str, form: str) -> Path:
        path = self.folder / f"{mix}-{form}.jsonl"
        if not path.exists():
            seed, count = TEXTS[mix]
            write_bodies(path, (protocol.body_of(form, texts[0]) for texts in islice(built_in(mix, seed, 1), count)))
        return path


def _encoded() -> protocol.Vector:
    """Returns the probe's vector from a process of its own: this one measures, and imports no torch."""
    command = [sys.executable, "-m", "bench.peers.probe"]
    ran = subprocess.run(command, cwd=ROOT, env=clean_environment({}), capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise PeerError(f"bench.peers.probe failed: {ran.stderr.strip()}")
    return np.array(json.loads(ran.stdout.splitlines()[-1]), dtype=np.float64)


def of_right_answers(measured: Measured) -> dict[str, float]:
    """Returns the figures of a load, its rate without the share of failed requests. Latencies are of all answers."""
    figures = figures_of(measured)
    right = 1 - figures[ERRORS] / measured.load.requests
    return figures | {"requests_per_s": measured.requests_per_s * right}
