"""A whole search on a cluster that is a formula."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
    """Serves by a formula, notes which workers it was asked for, and is interrupted at a load."""

    formula: Formula
    ends_at: int | None = None
    workers: list[dict[str, str]] = field(default_factory=list)
    loads: int = 0
    _now: dict[str, str] = field(default_factory=dict)

    def start_worker(self, settings: dict[str, str]) -> WorkerStart:
        """Starts a worker."""
        self.workers.append(settings)
        self._now = settings
        return WorkerStart("cpu", 2.0)

    def measure(self, clients: int) -> Measurement:
        """Puts a load on it."""
        self.loads += 1
        if self.loads == self.ends_at:
            raise KeyboardInterrupt
        return self.formula(self._now, clients)


@dataclass
class Viewer:
    """Notes what it is told."""

    told: list[str] = field(default_factory=list)
    estimate_s: list[float] = field(default_factory=list)

    def print_line(self, text: str) -> None:
        """Notes it."""
        self.told.append(text)

    def set_remaining(self, left_s: float) -> None:
        """Notes it."""
        self.estimate_s.append(left_s)

    def set_status(self, text: str) -> None:
        """Does not."""

    def print_result(self, text: str) -> None:
        """Notes it."""
        self.told.append(text)


def run_search(cluster: Cluster, p95_ms: float = 100.0, **settings: object) -> tuple[TuneReport, Viewer]:
    """Searches to the end, or to where it is interrupted."""
    chosen = TuneSettings.model_validate({"p95_ms": p95_ms, **settings})
    progress = Viewer()
    search = Search(chosen, cluster, cluster, (SIZE, WAIT), progress)
    report = TuneReport(chosen, {"model": "formula"}, search, ())
    try:
        search.run(cluster.start_worker({}))
    except KeyboardInterrupt:
        assert cluster.ends_at is not None
    return report, progress


def text_of(report: TuneReport) -> str:
    """What the terminal shows."""
    output = io.StringIO()
    Console(file=output, width=160).print(as_text(report))
    return output.getvalue()


def sized(given: Mapping[str, str], clients: int) -> Measurement:
    """Larger batches pay: 40 ms for any up to the size."""
    return batching_server(clients, 40, 0.01, int(given.get("max_batch_size", "64")))


def flat(_given: Mapping[str, str], clients: int) -> Measurement:
    """No setting changes anything."""
    return batching_server(clients, 5, 3, 64)


def test_the_best_setting_is_found_and_said_in_lines_to_paste() -> None:
    """With its gain, and nothing that is as by default."""
    report, _ = run_search(Cluster(sized), p95_ms=90)
    text = text_of(report)
    assert "REDBATCH_MAX_BATCH_SIZE=256\n" in text
    assert "REDBATCH_MAX_BATCH_WAIT_MS" not in text
    assert "over the defaults" in text
    assert "256 clients" in text


def test_where_nothing_helps_the_defaults_stay_and_no_finals_are_run() -> None:
    """One worker for each neighbour, and none twice."""
    cluster = Cluster(flat)
    report, _ = run_search(cluster)
    assert "Keep the defaults" in text_of(report)
    assert cluster.workers == [{}, {"max_batch_size": "128"}, {"max_batch_size": "32"}, {"max_batch_wait_ms": "5"}]
    assert report.search.rounds == {}


def test_a_stroke_of_luck_does_not_beat_the_defaults() -> None:
    """A setting that was fast once is not when it runs in turn with them."""
    seen: list[int] = []

    def lucky(given: Mapping[str, str], clients: int) -> Measurement:
        first = "max_batch_wait_ms" in given and len(seen) < 2
        if first:
            seen.append(clients)
        return measurement(clients, clients * (20 if first else 10), clients * 4)

    report, _ = run_search(Cluster(lucky))
    assert report.search.rounds.keys() == {DEFAULTS, frozenset({("max_batch_wait_ms", "5")})}
    text = text_of(report)
    assert "Keep the defaults" in text
    assert "REDBATCH_" not in text


def test_a_budget_that_nothing_keeps_is_said_with_the_lowest_p95() -> None:
    """And with what it was seen."""
    report, _ = run_search(Cluster(flat), p95_ms=4)
    assert report.confirmation is not None
    assert report.confirmation.winner is None
    assert "Nothing keeps p95 within 4 ms. The lowest: 5.0 ms, with defaults and 1 client." in text_of(report)


@pytest.mark.parametrize("ends_at", range(2, 12))
def test_an_early_end_shows_what_was_found(ends_at: int) -> None:
    """Wherever it comes, also in the middle of a setting; before the first load there is nothing."""
    report, _ = run_search(Cluster(sized, ends_at=ends_at), p95_ms=90)
    assert report.confirmation is None
    assert report.search.results[DEFAULTS].measurements
    assert "Interrupted" in text_of(report)
    assert json.loads(as_json(report))["ended_early"]
    assert text_of(run_search(Cluster(sized, ends_at=1))[0]) == "Nothing was measured yet.\n"


def test_it_says_at_first_how_long_it_will_take() -> None:
    """From how long a worker took to start, and the loads."""
    short, progress = run_search(Cluster(flat), duration="1s", warmup="0s")
    assert "A worker starts in 2.0 s and a load takes 1.0 s" in progress.told[0]
    long, _ = run_search(Cluster(flat), duration="10s")
    assert short.search.estimate_s()[0] < short.search.estimate_s()[1] < long.search.estimate_s()[1]
    assert progress.estimate_s[0] == short.search.estimate_s()[0]


def test_the_json_has_every_load_and_the_recommendation() -> None:
    """As numbers; the lines to paste are made of `setting`."""
    written = json.loads(as_json(run_search(Cluster(sized), p95_ms=90)[0]))
    assert written["recommended"]["setting"] == {"max_batch_size": "256"}
    assert written["recommended"]["gain"] > 0.03
    assert written["defaults"]["setting"] == {}
    assert written["tried"][0]["setting"] == {}
    assert all(load["p95_ms"] > 0 for tried in written["tried"] for load in tried["loads"])
    assert len(written["rounds"]) >= 2


def test_few_answers_are_a_warning() -> None:
    """The p95 of a handful says little."""
    report, _ = run_search(Cluster(lambda _given, clients: Measurement(clients, 10, 5, 6, 7, answers=20, errors=0)))
    assert "warning" in text_of(report)
    assert "longer --duration" in text_of(report)


def test_a_load_is_long_beside_the_budget() -> None:
    """Unless the user says how long."""
    patient = TuneSettings(p95_ms=2_000)
    assert (patient.duration_s, patient.warmup_s) == (10, 4)
    assert TuneSettings(p95_ms=2_000, duration="1s").duration_s == 1
