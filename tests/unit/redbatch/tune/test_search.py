"""A complete search on a simulated cluster."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import pytest
from rich.console import Console

from redbatch.tune.measurement import Measurement
from redbatch.tune.report import TuneReport, as_json, as_text
from redbatch.tune.search import Search
from redbatch.tune.search_space import DEFAULTS, Setting
from redbatch.tune.settings import TuneSettings
from redbatch.tune.testbed import WorkerStart
from tests.unit.redbatch.tune.measurements import batching_server, measurement

SIZE = Setting("max_batch_size", ("16", "32", None, "128", "256"))
WAIT = Setting("max_batch_wait_ms", (None, "5"))
Formula = Callable[[Mapping[str, str], int], Measurement]


@dataclass
class Cluster:
    """Computes measurements by a formula, records the started workers, and can interrupt a load."""

    formula: Formula
    interrupted_at: int | None = None
    workers: list[dict[str, str]] = field(default_factory=list)
    loads: int = 0
    _current: dict[str, str] = field(default_factory=dict)

    def start_worker(self, settings: dict[str, str]) -> WorkerStart:
        """Records the worker."""
        self.workers.append(settings)
        self._current = settings
        return WorkerStart("cpu", 2.0)

    def measure(self, clients: int) -> Measurement:
        """Returns the measurement of a load."""
        self.loads += 1
        if self.loads == self.interrupted_at:
            raise KeyboardInterrupt
        return self.formula(self._current, clients)


@dataclass
class RecordedProgress:
    """Records the printed lines and the remaining times."""

    lines: list[str] = field(default_factory=list)
    estimate_s: list[float] = field(default_factory=list)

    def print_line(self, text: str) -> None:
        """Notes it."""
        self.lines.append(text)

    def set_remaining(self, left_s: float) -> None:
        """Notes it."""
        self.estimate_s.append(left_s)

    def set_status(self, text: str) -> None:
        """Does nothing."""

    def print_result(self, text: str) -> None:
        """Notes it."""
        self.lines.append(text)


def run_search(cluster: Cluster, p95_ms: float = 100.0, **settings: object) -> tuple[TuneReport, RecordedProgress]:
    """Runs the search to its end, or until it is interrupted."""
    tune_settings = TuneSettings.model_validate({"p95_ms": p95_ms, **settings})
    progress = RecordedProgress()
    search = Search(tune_settings, cluster, cluster, (SIZE, WAIT), progress)
    report = TuneReport(tune_settings, {"model": "formula"}, search, ())
    try:
        search.run(cluster.start_worker({}))
    except KeyboardInterrupt:
        assert cluster.interrupted_at is not None
    return report, progress


def text_of(report: TuneReport) -> str:
    """Returns the text that the terminal shows."""
    output = io.StringIO()
    Console(file=output, width=160).print(as_text(report))
    return output.getvalue()


def larger_is_better(settings: Mapping[str, str], clients: int) -> Measurement:
    """Larger batches help: any batch up to the size takes 40 ms."""
    return batching_server(clients, 40, 0.01, int(settings.get("max_batch_size", "64")))


def no_effect(_settings: Mapping[str, str], clients: int) -> Measurement:
    """No setting has an effect."""
    return batching_server(clients, 5, 3, 64)


def test_the_best_settings_are_reported_as_lines_to_paste() -> None:
    """The report has the settings of the winner as lines to paste, with the gain, and without defaults."""
    report, _ = run_search(Cluster(larger_is_better), p95_ms=90)
    text = text_of(report)
    assert "REDBATCH_MAX_BATCH_SIZE=256\n" in text
    assert "REDBATCH_MAX_BATCH_WAIT_MS" not in text
    assert "over the defaults" in text
    assert "256 clients" in text


def disturbed_cluster(formula: Formula, workers: Collection[int]) -> Cluster:
    """Returns a cluster on which other programs take half of the machine while these workers run, counted from 1."""

    def disturbed(settings: Mapping[str, str], clients: int) -> Measurement:
        normal = formula(settings, clients)
        return replace(normal, per_s=normal.per_s / 2) if len(cluster.workers) in workers else normal

    cluster = Cluster(disturbed)
    return cluster


@pytest.mark.parametrize(("formula", "workers"), [(no_effect, {4, 5}), (larger_is_better, {6})])
def test_a_disturbed_search_says_so(formula: Formula, workers: set[int]) -> None:
    """What runs twice, the defaults or a round, shows that other load took a part of the machine meanwhile."""
    report, _ = run_search(Cluster(formula), p95_ms=90)
    assert "disturbed" not in text_of(report)
    report, _ = run_search(disturbed_cluster(formula, workers), p95_ms=90)
    assert re.search(
        r"warning: the measurement was disturbed: .+ had [\d,.]+ to [\d,.]+ requests/s with", text_of(report)
    )
    assert "measure again with nothing else running here" in json.loads(as_json(report))["warnings"][0]


def test_if_nothing_helps_the_defaults_stay_without_confirmation_rounds() -> None:
    """If nothing helps, each neighbour gets one worker, the defaults run once more, without rounds, and stay."""
    cluster = Cluster(no_effect)
    report, progress = run_search(cluster)
    assert "Keep the defaults" in text_of(report)
    assert progress.lines[-1].startswith("defaults once more: ")
    assert cluster.workers == [{}, {"max_batch_size": "128"}, {"max_batch_size": "32"}, {"max_batch_wait_ms": "5"}, {}]
    assert report.search.rounds == {}


def test_a_single_lucky_measurement_does_not_beat_the_defaults() -> None:
    """A candidate that was fast only once does not beat the defaults in alternating rounds."""
    lucky_loads: list[int] = []

    def lucky(settings: Mapping[str, str], clients: int) -> Measurement:
        first = "max_batch_wait_ms" in settings and len(lucky_loads) < 2
        if first:
            lucky_loads.append(clients)
        return measurement(clients, clients * (20 if first else 10), clients * 4)

    report, progress = run_search(Cluster(lucky))
    assert progress.lines[-1].startswith("round 3 of 3: ")
    assert report.search.rounds.keys() == {DEFAULTS, frozenset({("max_batch_wait_ms", "5")})}
    text = text_of(report)
    assert "Keep the defaults" in text
    assert "REDBATCH_" not in text


def test_a_better_median_within_the_noise_is_said_to_be() -> None:
    """The candidate is faster in most rounds, but not in each: the defaults stay, and the result says what it had."""

    def noisy(settings: Mapping[str, str], clients: int) -> Measurement:
        is_faster = "max_batch_wait_ms" in settings and cluster.workers.count(dict(settings)) != 3
        return measurement(clients, clients * (11 if is_faster else 10), clients * 4)

    cluster = Cluster(noisy)
    report, _ = run_search(cluster)
    text = " ".join(text_of(report).split())
    assert re.search(r"Keep the defaults: .*; max_batch_wait_ms=5 had \+10\.0% in the median, .* the noise", text), text


def test_defaults_over_the_budget_run_again_beside_the_challenger() -> None:
    """If only their first worker exceeded the budget, they are compared in the rounds, where nothing beats them."""

    def disturbed_at_first(_settings: Mapping[str, str], clients: int) -> Measurement:
        return measurement(clients, clients, 150 if len(cluster.workers) == 1 else 50)

    cluster = Cluster(disturbed_at_first)
    report, _ = run_search(cluster)
    assert report.search.results[DEFAULTS].best is None
    assert len(report.search.rounds) > 1
    assert report.confirmation is not None
    assert report.confirmation.defaults is not None
    assert report.confirmation.gain is not None


def test_a_budget_that_nothing_keeps_is_reported_with_the_lowest_p95() -> None:
    """If nothing keeps the budget, the report has the lowest p95 and the candidate that reached it."""
    report, _ = run_search(Cluster(no_effect), p95_ms=4)
    assert report.confirmation is not None
    assert report.confirmation.winner is None
    assert "Nothing keeps p95 within 4 ms. The lowest: 5.0 ms, with defaults and 1 client." in text_of(report)


def test_a_budget_that_was_kept_once_alone_is_said_to_be() -> None:
    """The search found a load within the budget, and the rounds that followed none: the lowest p95 is no answer."""

    def disturbed_later(settings: Mapping[str, str], clients: int) -> Measurement:
        larger = {"max_batch_size": "128"}
        is_first = settings == larger and cluster.workers.count(larger) == 1
        return measurement(clients, clients, 50 if is_first else 150)

    cluster = Cluster(disturbed_later)
    report, _ = run_search(cluster)
    assert report.confirmation is not None
    assert report.confirmation.winner is None
    text = text_of(report)
    assert "Nothing keeps" not in text
    assert "within 100 ms each time: it was 50.0 ms once, with max_batch_size=128" in text


@pytest.mark.parametrize("interrupted_at", range(2, 12))
def test_an_interruption_shows_the_results_so_far(interrupted_at: int) -> None:
    """An interruption at any load shows the results so far; before the first load there are none."""
    report, _ = run_search(Cluster(larger_is_better, interrupted_at=interrupted_at), p95_ms=90)
    assert report.confirmation is None
    assert report.search.results[DEFAULTS].measurements
    text = text_of(report)
    assert "the best candidate has not run in all rounds" in text
    assert ("Confirmation in 3 rounds, as far as they went (medians):" in text) == bool(report.search.rounds)
    assert json.loads(as_json(report))["ended_early"]
    assert text_of(run_search(Cluster(larger_is_better, interrupted_at=1))[0]) == "Nothing was measured yet.\n"


def test_the_duration_is_estimated_at_the_start() -> None:
    """The estimate at the start follows from the start time of a worker and the duration of the loads."""
    short, progress = run_search(Cluster(no_effect), duration="1s", warmup="0s")
    assert "A worker starts in 2.0 s and a load takes 1.0 s" in progress.lines[0]
    long, _ = run_search(Cluster(no_effect), duration="10s")
    assert short.search.estimate_s()[0] < short.search.estimate_s()[1] < long.search.estimate_s()[1]
    assert progress.estimate_s[0] == short.search.estimate_s()[0]


def test_the_json_has_every_load_and_the_recommendation() -> None:
    """The JSON has every load as numbers, and the recommended settings."""
    written = json.loads(as_json(run_search(Cluster(larger_is_better), p95_ms=90)[0]))
    assert written["recommended"]["setting"] == {"max_batch_size": "256"}
    assert written["recommended"]["gain"] > 0.03
    assert written["defaults"]["setting"] == {}
    assert written["tried"][0]["setting"] == {}
    assert all(load["p95_ms"] > 0 for tried in written["tried"] for load in tried["loads"])
    assert len(written["rounds"]) >= 2


def test_few_answers_are_a_warning() -> None:
    """Few answers cause a warning, because their p95 is mostly chance."""
    report, _ = run_search(Cluster(lambda _settings, clients: Measurement(clients, 10, 5, 6, 7, answers=20, errors=0)))
    assert "warning" in text_of(report)
    assert "longer --duration" in text_of(report)


def test_a_load_is_long_beside_the_budget() -> None:
    """A load is long compared with the budget, unless the user sets its duration."""
    loose = TuneSettings(p95_ms=2_000)
    assert (loose.duration_s, loose.warmup_s) == (10, 4)
    assert TuneSettings(p95_ms=2_000, duration="1s").duration_s == 1
