"""Runs one server of the comparison, and measures cells on it."""

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
from bench.measurement import ClosedLoop, Measurement, measure
from bench.peers import protocol
from bench.peers.catalogue import Configuration, Peer
from bench.peers.comparison import ONE_GATEWAY, REDBATCH, TWO_GATEWAYS, Cell, Failure, Run
from bench.peers.server import Launch, PeerError, post, serving
from bench.step import ERRORS, figures_of
from bench.wrk import warm_up, write_bodies
from redbatch.bench.texts import built_in_texts

GATEWAYS = {ONE_GATEWAY: 1, TWO_GATEWAYS: 2}
WARMUP_CLIENTS = 64
LEAD_S = {"null": 0.5, "minilm": 2.0}
TAIL_S = {"null": 0.5, "minilm": 2.0}
"""Load before and after the window. A slow server answers a batch in a second or two, and the last
of these answers must come after the window."""

TEXTS = {"short": (1, 4_096), "mixed": (7, 256)}
"""Seed and number of the texts of a mix. A slow server processes the mixed ones twice in a window, so all servers
do the same work. Their mean length is that of the mix."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Durations of a measurement in seconds: warm-up load after the start, by model, and window, by part.

    `rounds` is the number of rounds.
    """

    warmup_s: Mapping[str, float]
    window_s: Mapping[str, float]
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class BareServer:
    """A server of which only the answers are measured, not the processes or Redis."""

    url: str
    redis: None = None

    @staticmethod
    def processes() -> Processes:
        """Returns no processes."""
        return {}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A server in one configuration: Redbatch, or a peer whose environment exists."""

    configuration: Configuration
    peer: Peer | None = None
    programs: Path = Path()

    @property
    def name(self) -> str:
        """Name in the results."""
        return self.peer.name if self.peer else REDBATCH

    @property
    def form(self) -> str:
        """Form of its requests (see Peer.body)."""
        return self.peer.body if self.peer else "text"


@dataclass(slots=True)
class Testbed:
    """State of all measurements.

    Attributes:
        folder: folder for the bodies of requests.
        show: called with the name of each measurement at its start.
        runs: results.
        failures: servers that failed.
        expected: the correct vector of the probe, by model.
    """

    folder: Path
    show: Callable[[str], None] = print
    runs: list[Run] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    expected: dict[str, protocol.Vector] = field(default_factory=dict)

    def run(self, candidate: Candidate, cells: Sequence[Cell], windows: Windows, number: int) -> None:
        """Starts a server, measures these cells of one model on it, and stops it. Records failures."""
        model, title = cells[0].model, f"{candidate.name} ({candidate.configuration.name})"
        self.show(f"{title}, {model}: starts")
        try:
            with self._serving(candidate, model) as url:
                texts = self._bodies(cells[0].mix, candidate.form)
                warm_up(url, texts, clients=WARMUP_CLIENTS, seconds=windows.warmup_s[model])
                for cell in cells:
                    self.show(f"{title}, {cell.part}, {cell.clients} client{'s' if cell.clients > 1 else ''}")
                    self.runs.append(self._measured(candidate, url, cell, windows, number))
        except (PeerError, protocol.WrongVectorError, *FAILURES) as error:
            failure = Failure(number, candidate.name, candidate.configuration.name, model, reason(error))
            self.failures.append(failure)
            self.show(f"{title}, {model}: FAILED: {failure.reason}")

    def compute_expected(self, models: Iterable[str]) -> None:
        """Computes the expected vectors: for the real model those of `encode`. Raises PeerError."""
        for model in models:
            self.show(f"{model}: computing the expected vector")
            self.expected[model] = protocol.expected_null_vector() if model == "null" else _encode_probe()

    @contextmanager
    def _serving(self, candidate: Candidate, model: str) -> Iterator[str]:
        if candidate.peer is None:
            with cluster(Shape(model, gateways=GATEWAYS[candidate.configuration.name])) as running:
                protocol.check_vector(
                    model, protocol.decode_vector("text", post(running.url, "text")), self.expected[model]
                )
                yield running.url
            return
        launch = Launch(candidate.peer, candidate.configuration, model, candidate.programs)
        with serving(launch, self.expected[model]) as url:
            yield url

    def _measured(self, candidate: Candidate, url: str, cell: Cell, windows: Windows, number: int) -> Run:
        lead_s, tail_s = LEAD_S[cell.model], TAIL_S[cell.model]
        loop = ClosedLoop(cell.clients, windows.window_s[cell.part], lead_s, warmup_s=0, tail_s=tail_s)
        figures = figures_without_failures(measure(BareServer(url), self._bodies(cell.mix, candidate.form), loop))
        return Run(number, candidate.name, candidate.configuration.name, cell.name, figures)

    def _bodies(self, mix: str, form: str) -> Path:
        path = self.folder / f"{mix}-{form}.jsonl"
        if not path.exists():
            seed, count = TEXTS[mix]
            write_bodies(
                path, (protocol.encode_request(form, texts[0]) for texts in islice(built_in_texts(mix, seed, 1), count))
            )
        return path


def _encode_probe() -> protocol.Vector:
    """Returns the probe's vector from a separate process: this process measures, and must not import torch."""
    command = [sys.executable, "-m", "bench.peers.probe"]
    process = subprocess.run(command, cwd=ROOT, env=clean_environment({}), capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise PeerError(f"bench.peers.probe failed: {process.stderr.strip()}")
    return np.array(json.loads(process.stdout.splitlines()[-1]), dtype=np.float64)


def figures_without_failures(measured: Measurement) -> dict[str, float]:
    """Returns the figures of a load. Failed requests are excluded from the rate, not from the latencies."""
    figures = figures_of(measured)
    right = 1 - figures[ERRORS] / measured.load.requests
    return figures | {"requests_per_s": measured.requests_per_s * right}
