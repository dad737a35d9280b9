"""One search: asks the policy what to try, tries it, and keeps what was found, also when it is ended early."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from redbatch.tune import confirmation, load_search
from redbatch.tune import coordinate_descent as climbing
from redbatch.tune.confirmation import Confirmation
from redbatch.tune.measurement import Measurement, TrialResult, trial_result
from redbatch.tune.search_space import DEFAULTS, Candidate, Setting, describe_candidate
from redbatch.tune.settings import TuneSettings
from redbatch.tune.testbed import WorkerStart

MAX_CHALLENGERS = 2
LOADS_OF_DEFAULTS = 5
LOADS_PER_TRIAL = 1.6
LOADS_PER_ROUND = 2
"""How many loads a setting takes, about: the first, one that is compared with another, and one of a final round."""


class WorkerStarter(Protocol):
    """Whose worker changes."""

    def serve(self, settings: dict[str, str]) -> WorkerStart:
        """Returns when a worker with these settings too is ready."""


class Measurer(Protocol):
    """What puts load on it."""

    def point(self, clients: int) -> Measurement:
        """Returns what so many clients found."""


class SearchProgress(Protocol):
    """Who is shown how far it is."""

    def print_line(self, text: str) -> None:
        """Is told something that stays."""

    def expect(self, left_s: float) -> None:
        """Is told how long it will take from now on, about."""

    def say(self, text: str) -> None:
        """Is told what runs from now on."""

    def finished(self, text: str) -> None:
        """Is told what came of a setting."""


class Search:
    """The search and what it has found so far.

    Attributes:
        found: what came of each setting, in the order in which they were tried.
        rounds: the points of the finals.
        verdict: what came of all; None until the end.
    """

    def __init__(
        self,
        settings: TuneSettings,
        cluster: WorkerStarter,
        load: Measurer,
        knobs: Sequence[Setting],
        viewer: SearchProgress,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._load = load
        self._knobs = knobs
        self._viewer = viewer
        self._start_s = 0.0
        self._spent_s: list[float] = []
        self.found: dict[Candidate, TrialResult] = {}
        self.rounds: dict[Candidate, list[Measurement]] = {}
        self.verdict: Confirmation | None = None

    def run(self, served: WorkerStart) -> Confirmation:
        """Searches, with a worker of the defaults that is ready, and returns who wins.

        Raises:
            KeyboardInterrupt: the user ended it; what was found until then stays.
            StandError: a worker cannot run with a setting.
        """
        self._start_s = served.start_s
        self._announce()
        self._search()
        self._compare()
        self.verdict = self._judged()
        return self.verdict

    def expected_s(self) -> tuple[float, float]:
        """Returns how long the whole search takes, about: if nothing beats the defaults, and if much does."""
        near_s = self._start_s + LOADS_PER_TRIAL * self._settings.load_s
        first_s = LOADS_OF_DEFAULTS * self._settings.load_s
        tries = climbing.min_trials(self._knobs) - 1
        return first_s + tries * near_s, first_s + 2 * tries * near_s + self._finals_s(1 + MAX_CHALLENGERS)

    def _announce(self) -> None:
        min_s, max_s = self.expected_s()
        self._viewer.print_line(
            f"A worker starts in {self._start_s:.1f} s and a load takes {self._settings.load_s:.1f} s: all of it will "
            f"take {_format_time(min_s)} if the defaults are best, up to about {_format_time(max_s)} if not. "
            "Ctrl-C ends it and shows what was found."
        )
        self._viewer.expect(min_s)

    def _search(self) -> None:
        climb = climbing.coordinate_descent(self._knobs)
        asked = next(climb)
        while True:
            result = self._try(asked)
            try:
                asked = climb.send(result)
            except StopIteration:
                return

    def _try(self, asked: climbing.Trial) -> TrialResult:
        began_s = time.monotonic()
        name = describe_candidate(asked.choice)
        number = len(self.found) + 1
        if asked.against is not None:
            self._viewer.say(f"setting {number}, {name}: starting a worker")
            self._cluster.serve(dict(asked.choice))
        steps = self._ladder(asked)
        clients = next(steps)
        points: tuple[Measurement, ...] = ()
        while True:
            self._viewer.say(f"setting {number}, {name}: {clients:,} clients")
            point = self._load.point(clients)
            points = (*points, point)
            self.found[asked.choice] = trial_result(points, self._settings.p95_ms)
            try:
                clients = steps.send(point)
            except StopIteration as end:
                result: TrialResult = end.value
                break
        self.found[asked.choice] = result
        self._viewer.finished(f"{name}: {describe_result(result)}")
        if asked.against is not None:
            self._spent_s.append(time.monotonic() - began_s)
        self._viewer.expect(self._left_s())
        return result

    def _ladder(self, asked: climbing.Trial) -> load_search.LoadSearch:
        budget_ms, most = self._settings.p95_ms, self._settings.max_clients
        if asked.against is None:
            return load_search.full_search(budget_ms, most)
        return load_search.local_search(budget_ms, asked.against, most)

    def _compare(self) -> None:
        """Runs the finals, if there is anybody to run against the defaults."""
        challengers = climbing.challengers(self.found, MAX_CHALLENGERS)
        if not challengers:
            return
        finalists = [each for each in (DEFAULTS, *challengers) if self.found[each].best is not None]
        self._viewer.expect(self._finals_s(len(finalists)))
        for number in range(self._settings.rounds):
            for choice in confirmation.round_order(finalists, number):
                self._viewer.say(f"round {number + 1} of {self._settings.rounds}: {describe_candidate(choice)}")
                self._cluster.serve(dict(choice))
                for clients in confirmation.confirmation_clients(self.found[choice], self._settings.max_clients):
                    self.rounds.setdefault(choice, []).append(self._load.point(clients))

    def _judged(self) -> Confirmation:
        """Where nobody challenged the defaults, they win with what the search has found of them."""
        alone = {DEFAULTS: list(self.found[DEFAULTS].points)}
        return confirmation.confirm(self.rounds or alone, self._settings.p95_ms)

    def _left_s(self) -> float:
        """How long it will take from now on, about, if nothing more wins."""
        left = max(1, climbing.min_trials(self._knobs) - len(self.found))
        each_s = sum(self._spent_s) / len(self._spent_s) if self._spent_s else self._start_s + self._settings.load_s * 2
        challengers = climbing.challengers(self.found, MAX_CHALLENGERS)
        return left * each_s + (self._finals_s(1 + len(challengers)) if challengers else 0.0)

    def _finals_s(self, finalists: int) -> float:
        return self._settings.rounds * finalists * (self._start_s + LOADS_PER_ROUND * self._settings.load_s)


def describe_result(found: TrialResult) -> str:
    """Says what came of a setting, in a few words."""
    point = found.best or found.lowest
    clients = f"{point.clients:,} client{'' if point.clients == 1 else 's'}"
    said = f"{point.per_s:,.1f} requests/s with {clients}, p95 {point.p95_ms:,.1f} ms"
    if found.best is not None:
        return said
    return f"{said}: over the budget" + (", and no faster" if found.dropped else "")


def _format_time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"  # noqa: PLR2004 - as people say it
