"""The result as text, JSON and plot, and the progress display."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from redbatch.bench.answers import AnsweredError
from redbatch.bench.progress import LoadProgress
from redbatch.bench.report import as_json, as_text
from redbatch.bench.request_log import RequestLog
from redbatch.bench.result_plot import draw
from redbatch.bench.run import GeneratorCost, RunResult, RunSpec
from redbatch.bench.settings import BenchSettings
from redbatch.bench.statistics import WarmupSummary, summarize
from redbatch.bench.target import parse_target
from redbatch.terminal import PrintableConsole

COST = GeneratorCost(
    cpu_us_per_request=31.0, core_share=0.12, connections=64, peak_in_flight=64, delayed_requests=0, peak_lag_ms=0.4
)


def result_of(cost: GeneratorCost = COST, *, empty: bool = False, **settings: object) -> RunResult:
    """Returns a run of 2 s with 1,000 good answers of 10 to 20 ms, 3 refusals and one late answer; all good before."""
    record = RequestLog()
    for i in range(1_000):
        record.add(i / 500, 0.010 + i / 100_000, "ok", 200, 4_000)
    for _ in range(3):
        record.add(0.5, 0.001, "queue_full", 200, 100)
    record.add(0.6, 1.2, "deadline_exceeded", 200, 100)
    job = RunSpec(
        BenchSettings.model_validate({"timeout_ms": 1_000, **settings}), parse_target("http://host"), [b"request"], True
    )
    summary = None if empty else summarize(record, 2.0, job.settings.late_after_s)
    return RunResult(job, datetime(2026, 1, 2, tzinfo=UTC), empty, summary, WarmupSummary(100, {}), cost)


def text_of(result: RunResult) -> str:
    """Returns the text that the terminal shows."""
    output = io.StringIO()
    PrintableConsole(file=output, width=100).print(as_text(result))
    return output.getvalue()


def test_the_table_has_every_figure() -> None:
    """The table has throughput, latency, errors by code, late answers, and the cost of the generator."""
    text = text_of(result_of())
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    for expected in (
        "closed loop, 64 clients, short texts",
        "requests/s",
        "p50 15.00 ms",
        "p95 19.49 ms",
        "p99 19.89 ms",
        "max 19.99 ms",
        "4 of 1,004 (0.4%): queue_full 3, deadline_exceeded 1",
        "1 took over 1,000 ms (since sent)",
        "used 12% of a core, 31 µs of CPU per request",
    ):
        assert expected in text
    assert "warning" not in text


def test_an_open_loop_states_that_waiting_counts() -> None:
    """The table states that latencies of an open loop include waiting."""
    text = text_of(result_of(rate=500.0, arrivals="bursty", inputs_per_request=8))
    for expected in (
        "open loop, 500 requests/s, bursty",
        "8 inputs each",
        "requests/s due",
        "since due, including time spent waiting",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (replace(COST, core_share=0.71), "used 71% of a core: it may have limited the load"),
        (replace(COST, delayed_requests=7), "7 requests waited for one of the 64 connections"),
        (replace(COST, peak_lag_ms=12.0), "sent up to 12 ms too late"),
    ],
)
def test_doubtful_figures_have_a_warning(cost: GeneratorCost, message: str) -> None:
    """A warning that the generator may have limited the load is in the table and in the JSON."""
    result = result_of(cost)
    assert message in text_of(result)
    (warning,) = json.loads(as_json(result))["generator"]["warnings"]
    assert message in warning


def test_json_has_settings_versions_figures_and_time_series() -> None:
    """The JSON has units in its names, and null for settings that were not given."""
    written = json.loads(as_json(result_of(seed=7)))
    assert (written["url"], written["loop"], written["interrupted"]) == ("http://host/embed", "closed", False)
    assert (written["settings"]["seed"], written["settings"]["rate"], written["settings"]["check"]) == (7, None, True)
    assert written["late_after_ms"] == 1_000
    assert {"redbatch", "python", "uvloop", "httptools"} <= set(written["versions"])
    measured = written["measured"]
    assert (measured["requests"], measured["ok"], measured["late"]) == (1_004, 1_000, 1)
    assert measured["errors"] == {"queue_full": 3, "deadline_exceeded": 1}
    assert list(measured["latency_ms"]) == ["min", "mean", "p50", "p90", "p95", "p99", "p99_9", "max"]
    assert sum(bucket["count"] for bucket in measured["histogram"]) == 1_000
    assert [second["sent"] for second in measured["seconds"]] == [504, 500]
    assert written["generator"]["core_share"] == 0.12


def test_the_first_error_is_shown_in_full() -> None:
    """With its status, code and message, as text and in the JSON; without one, there is no line for it."""
    result = replace(result_of(), first_error=AnsweredError(429, "queue_full", "The queue is [red]full."))
    assert "first error" in text_of(result)
    assert "429 queue_full: The queue is [red]full." in text_of(result)
    written = json.loads(as_json(result))["first_error"]
    assert written == {"status": 429, "code": "queue_full", "message": "The queue is [red]full."}
    bare = replace(result, first_error=AnsweredError(502, "http_502", ""))
    assert re.search(r"first error +502\s*\n", text_of(bare))
    assert "first error" not in text_of(result_of())
    assert json.loads(as_json(result_of()))["first_error"] is None


@pytest.mark.parametrize("empty", [False, True])
def test_errors_of_the_warmup_are_shown(*, empty: bool) -> None:
    """In a separate line and in the JSON, also if nothing was measured; without errors, there is no line."""
    warmup = WarmupSummary(4_500, {"overloaded": 4_133, "http_502": 1})
    result = replace(result_of(empty=empty), warmup=warmup)
    line = r"warmup:? +4,134 of 4,500 requests failed: overloaded 4,133, http_502 1\n"
    assert re.search(line, text_of(result))
    assert json.loads(as_json(result))["warmup"] == {"requests": 4_500, "errors": warmup.errors}
    assert "warmup" not in text_of(result_of(empty=empty))


def test_a_body_of_the_user_is_named() -> None:
    """In place of the texts, which it may not contain."""
    assert "64 clients, bodies of --body, 2.0 s" in text_of(result_of(body="{}"))


def test_an_interrupted_run_states_the_requests_in_flight() -> None:
    """The result states the number of requests in flight, whose outcome is unknown."""
    result = replace(result_of(), interrupted=True, unanswered=52)
    assert "ended by Ctrl-C: 52 in flight do not count" in text_of(result).replace("\n", " ")
    written = json.loads(as_json(result))
    assert (written["interrupted"], written["unanswered"]) == (True, 52)


def test_a_run_interrupted_in_its_warmup_has_no_figures() -> None:
    """The result contains no figures, and the JSON stays valid."""
    no_cost = replace(COST, cpu_us_per_request=float("nan"), core_share=float("nan"))
    result = result_of(no_cost, empty=True)
    assert "before anything was measured" in text_of(result)
    written = json.loads(as_json(result))
    assert (written["measured"], written["generator"]["core_share"]) == (None, None)


def test_the_plot_is_a_png(tmp_path: Path) -> None:
    """The plot is a PNG, for a closed and for an open loop."""
    for name, result in (("closed.png", result_of()), ("open.png", result_of(rate=500.0))):
        draw(result, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def progress_text(*, terminal: bool, **settings: object) -> str:
    """Returns the progress output of a run at -0.5 s, 4 s, 5 s, 5.5 s and 10 s."""
    output, log = io.StringIO(), RequestLog()
    console = Console(file=output, force_terminal=terminal, width=100, force_interactive=terminal)
    with LoadProgress(BenchSettings.model_validate(settings), console) as progress:
        for elapsed_s, finished in ((-0.5, 10), (4.0, 910), (5.0, 1_110), (5.5, 1_200), (10.0, 2_100)):
            while (number := len(log)) < finished:
                code = "overloaded" if number % 100 == 0 else "ok"
                log.add(-0.1 if number < 110 else elapsed_s - 0.5, 0.01, code, 200, 100)
            progress.show(elapsed_s, log)
    return output.getvalue()


def test_progress_is_a_line_every_five_seconds_without_a_terminal() -> None:
    """Without a terminal, progress is a line every five seconds, without the requests and errors of the warmup."""
    assert progress_text(terminal=False).splitlines() == [
        "5 s: 1,000 requests, 200 requests/s, 10 errors",
        "10 s: 1,990 requests, 199 requests/s, 19 errors",
    ]


@pytest.mark.parametrize("settings", [{}, {"requests": 1_900}])
def test_progress_is_a_bar_on_a_terminal(settings: dict[str, int]) -> None:
    """The bar shows the phase of the run."""
    text = progress_text(terminal=True, **settings)
    for expected in ("warmup", "measuring", "waiting for answers", "200 requests/s, 10 errors"):
        assert expected in text
