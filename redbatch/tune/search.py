"""One search: tries the candidates that the policy selects, and keeps the results, also if it ends early."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from redbatch.tune.confirmation import Confirmation, confirm, confirmation_clients, find_challengers, round_order
from redbatch.tune.coordinate_descent import Trial, coordinate_descent, min_trials
from redbatch.tune.load_search import LoadSearch, full_search, local_search
from redbatch.tune.measurement import Measurement, TrialResult, trial_result
from redbatch.tune.search_space import DEFAULTS, Candidate, Setting, describe_candidate
from redbatch.tune.settings import TuneSettings
from redbatch.tune.testbed import WorkerStart

MAX_CHALLENGERS = 2
LOADS_OF_DEFAULTS = 5
LOADS_PER_TRIAL = 1.6
LOADS_PER_ROUND = 2
"""Approximate numbers of loads: of the defaults, of a candidate that is compared with a baseline, and of a candidate in
a round of the confirmation."""


class WorkerStarter(Protocol):
    """Starts workers of the cluster."""

    def start_worker(self, settings: dict[str, str]) -> WorkerStart:
        """Starts a worker with these settings in addition, and returns when it is ready."""


class Measurer(Protocol):
    """Puts load on the cluster."""

    def measure(self, clients: int) -> Measurement:
        """Returns the measurement of a load with this many clients."""


class SearchProgress(Protocol):
    """Receives the progress of a search."""

    def print_line(self, text: str) -> None:
        """Prints a permanent line."""

    def set_remaining(self, left_s: float) -> None:
        """Sets the approximate remaining time, in seconds."""

    def set_status(self, text: str) -> None:
        """Shows what runs from now on."""

    def print_result(self, text: str) -> None:
        """Prints the result of a candidate."""


class Search:
    """A search and its results so far.

    Attributes:
        results: the result of each candidate, in the order in which they were tried.
        rounds: the measurements of the confirmation rounds.
        recheck: the defaults at their best load again, at the end of a search without rounds.
        confirmation: the outcome; None until the end.
    """

    def __init__(
        self,
        settings: TuneSettings,
        worker_starter: WorkerStarter,
        measurer: Measurer,
        settings_to_search: Sequence[Setting],
        progress: SearchProgress,
    ) -> None:
        self._settings = settings
        self._worker_starter = worker_starter
        self._measurer = measurer
        self._settings_to_search = settings_to_search
        self._progress = progress
        self._start_s = 0.0
        self._trial_times_s: list[float] = []
        self.results: dict[Candidate, TrialResult] = {}
        self.rounds: dict[Candidate, list[Measurement]] = {}
        self.recheck: Measurement | None = None
        self.confirmation: Confirmation | None = None

    def run(self, worker_start: WorkerStart) -> Confirmation:
        """Searches, starting with a ready worker that has the defaults, and returns the outcome.

        Raises:
            KeyboardInterrupt: the user interrupted the search; the results so far remain.
            TestbedError: a worker cannot run with a candidate.
        """
        self._start_s = worker_start.start_s
        self._announce()
        self._search()
        self._confirm()
        self.confirmation = self._conclude()
        return self.confirmation

    def estimate_s(self) -> tuple[float, float]:
        """Returns the approximate duration, in seconds: if nothing beats the defaults, and if many candidates do."""
        trial_s = self._start_s + LOADS_PER_TRIAL * self._settings.load_s
        defaults_s = LOADS_OF_DEFAULTS * self._settings.load_s
        trials = min_trials(self._settings_to_search) - 1
        max_s = defaults_s + 2 * trials * trial_s + self._confirmation_s(1 + MAX_CHALLENGERS)
        return defaults_s + trials * trial_s + self._recheck_s(), max_s

    def _announce(self) -> None:
        min_s, max_s = self.estimate_s()
        self._progress.print_line(
            f"A worker starts in {self._start_s:.1f} s and a load takes {self._settings.load_s:.1f} s: the search will "
            f"take {_format_time(min_s)} if the defaults are best, up to about {_format_time(max_s)} otherwise. "
            "Ctrl-C ends it and prints the results so far."
        )
        self._progress.set_remaining(min_s)

    def _search(self) -> None:
        descent = coordinate_descent(self._settings_to_search)
        trial = next(descent)
        while True:
            result = self._run_trial(trial)
            try:
                trial = descent.send(result)
            except StopIteration:
                return

    def _run_trial(self, trial: Trial) -> TrialResult:
        began_s = time.monotonic()
        name = describe_candidate(trial.candidate)
        number = len(self.results) + 1
        if trial.baseline is not None:
            self._progress.set_status(f"candidate {number}, {name}: starting a worker")
            self._worker_starter.start_worker(dict(trial.candidate))
        steps = self._load_search(trial)
        clients = next(steps)
        measurements: tuple[Measurement, ...] = ()
        while True:
            self._progress.set_status(f"candidate {number}, {name}: {clients:,} clients")
            measurement = self._measurer.measure(clients)
            measurements = (*measurements, measurement)
            self.results[trial.candidate] = trial_result(measurements, self._settings.p95_ms)
            try:
                clients = steps.send(measurement)
            except StopIteration as end:
                result: TrialResult = end.value
                break
        self.results[trial.candidate] = result
        self._progress.print_result(f"{name}: {result.describe()}")
        if trial.baseline is not None:
            self._trial_times_s.append(time.monotonic() - began_s)
        self._progress.set_remaining(self._remaining_s())
        return result

    def _load_search(self, trial: Trial) -> LoadSearch:
        budget_ms, max_clients = self._settings.p95_ms, self._settings.max_clients
        if trial.baseline is None:
            return full_search(budget_ms, max_clients)
        return local_search(budget_ms, trial.baseline, max_clients)

    def _confirm(self) -> None:
        """Runs the confirmation rounds, if any candidate beat the defaults; otherwise the defaults once more.

        Only what runs twice can show that other load disturbed the search.
        """
        challengers = find_challengers(self.results, MAX_CHALLENGERS)
        if not challengers:
            self._progress.set_status("defaults once more")
            self._worker_starter.start_worker({})
            result = self.results[DEFAULTS]
            self.recheck = self._measurer.measure((result.best or result.lowest).clients)
            self._progress.print_result(f"defaults once more: {self.recheck.describe()}")
            return
        candidates = [DEFAULTS, *challengers]
        self._progress.set_remaining(self._confirmation_s(len(candidates)))
        for number in range(self._settings.rounds):
            for candidate in round_order(candidates, number):
                name = f"round {number + 1} of {self._settings.rounds}: {describe_candidate(candidate)}"
                self._progress.set_status(name)
                self._worker_starter.start_worker(dict(candidate))
                for clients in confirmation_clients(self.results[candidate], self._settings.max_clients):
                    measurement = self._measurer.measure(clients)
                    self.rounds.setdefault(candidate, []).append(measurement)
                    self._progress.print_result(f"{name}: {measurement.describe()}")

    def _conclude(self) -> Confirmation:
        """Returns the outcome. If no candidate beat the defaults, they win with the results of the search."""
        defaults_only = {DEFAULTS: list(self.results[DEFAULTS].measurements)}
        return confirm(self.rounds or defaults_only, self._settings.p95_ms)

    def _remaining_s(self) -> float:
        """Returns the approximate remaining time, in seconds, if nothing more wins."""
        left = max(1, min_trials(self._settings_to_search) - len(self.results))
        each_s = (
            sum(self._trial_times_s) / len(self._trial_times_s)
            if self._trial_times_s
            else self._start_s + self._settings.load_s * 2
        )
        challengers = find_challengers(self.results, MAX_CHALLENGERS)
        return left * each_s + (self._confirmation_s(1 + len(challengers)) if challengers else self._recheck_s())

    def _recheck_s(self) -> float:
        return self._start_s + self._settings.load_s

    def _confirmation_s(self, candidates: int) -> float:
        return self._settings.rounds * candidates * (self._start_s + LOADS_PER_ROUND * self._settings.load_s)


def _format_time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"  # noqa: PLR2004 - readable times
