"""The result of a search as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from redbatch.tables import PlainTable, plain_table
from redbatch.terminal import make_console
from redbatch.tune.confirmation import Confirmation, RoundMedians, best_medians, medians_by_clients
from redbatch.tune.load_runner import MIN_ANSWERS
from redbatch.tune.measurement import DISTURBED_FACTOR, MARGIN, Measurement, TrialResult
from redbatch.tune.search import Search
from redbatch.tune.search_space import DEFAULTS, Candidate, describe_candidate
from redbatch.tune.settings import TuneSettings
from shared.process.settings import variable_of
from shared.process.version import __version__

FILE_WIDTH = 150
"""Width in columns of the output to a file or a pipe, which do not have a width."""


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The search, the worker settings that the user gave, and reasons to doubt the measurements.

    If the search ended early, `ended_by` says what ended it.
    """

    settings: TuneSettings
    worker_settings: Mapping[str, str]
    search: Search
    warnings: Collection[str]
    ended_by: str = ""

    @property
    def confirmation(self) -> Confirmation | None:
        """The outcome of the confirmation; None if the search ended early."""
        return self.search.confirmation

    @property
    def lowest(self) -> tuple[Candidate, Measurement] | None:
        """The measurement with the lowest p95 of all, and its candidate."""
        measurements = [(candidate, result.lowest) for candidate, result in self.search.results.items()]
        return min(measurements, key=lambda each: (not each[1].answers, each[1].p95_ms), default=None)


def print_report(report: TuneReport, console: Console | None = None) -> None:
    """Prints the report to stdout."""
    console = console or make_console()
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print(as_text(report), soft_wrap=True)


def as_text(report: TuneReport) -> Group:
    """Returns the table of candidates, that of the confirmation rounds, and the settings to use."""
    search, settings = report.search, report.settings
    if not search.results:
        return Group(Text("Nothing was measured yet."))
    parts: list[RenderableType] = [_title(report), trial_table(search.results, settings.p95_ms)]
    if search.rounds:
        so_far = "" if report.confirmation else ", as far as they went"
        heading = f"Confirmation in {settings.rounds} rounds{so_far} (medians):"
        parts += ["", Text(heading, style="bold"), _confirmation_table(report)]
    parts += ["", *conclusion(report)]
    parts += [Text(f"warning: {text}", style="yellow") for text in _all_warnings(report)]
    return Group(*parts)


def _title(report: TuneReport) -> Text:
    settings = report.settings
    texts = str(settings.texts) if settings.texts else f"{settings.mix} texts"
    each = f", {settings.inputs_per_request:,} in a request" if settings.inputs_per_request > 1 else ""
    fixed = "".join(f", {name}={value}" for name, value in sorted(report.worker_settings.items()) if name != "model")
    model = report.worker_settings.get("model", "minilm")
    return Text(f"{model}{fixed}: p95 within {settings.p95_ms:g} ms, {texts}{each}", style="bold")


def trial_table(results: Mapping[Candidate, TrialResult], budget_ms: float) -> PlainTable:
    """Returns a row per candidate: its best load within the budget, or the one closest to it."""
    table = _table("candidate", "clients", "requests/s", "p50 ms", "p95 ms", "")
    for candidate, result in results.items():
        measurement = result.best or result.lowest
        table.add_row(
            _one_per_line(candidate),
            f"{measurement.clients:,}",
            *(_format_number(value) for value in (measurement.per_s, measurement.p50_ms, measurement.p95_ms)),
            _remark(result, budget_ms),
            style="" if result.best else "dim",
        )
    return table


def _remark(result: TrialResult, budget_ms: float) -> str:
    if result.best is None:
        errors = f", {result.lowest.errors:,} failed" if result.lowest.errors else ""
        return ("over, no faster" if result.dropped else "over the budget") + errors
    over = [
        measurement
        for measurement in result.measurements
        if not measurement.within(budget_ms) and measurement.clients > result.best.clients
    ]
    if not over:
        return "no gain beyond"
    first = min(over, key=lambda measurement: measurement.clients)
    return f"{first.clients:,} clients: {_format_number(first.p95_ms)} ms"


def _confirmation_table(report: TuneReport) -> PlainTable:
    table = _table("candidate", "clients", "requests/s", "p50 ms", "p95 ms", "rounds")
    for candidate, measurements in report.search.rounds.items():
        for medians in medians_by_clients(candidate, measurements):
            figures = (medians.per_s, medians.p50_ms, medians.p95_ms)
            runs = f"{_format_number(min(medians.runs))} to {_format_number(max(medians.runs))}"
            table.add_row(
                _one_per_line(candidate), f"{medians.clients:,}", *(_format_number(value) for value in figures), runs
            )
    return table


def conclusion(report: TuneReport) -> list[Text]:
    """Returns the conclusion, with lines to paste."""
    confirmation, settings = report.confirmation, report.settings
    if confirmation is None:
        return _interrupted(report)
    winner = confirmation.winner
    if winner is None:
        return _nothing_within_budget(report)
    rate = f"{_format_number(winner.per_s)} requests/s with {winner.clients:,} clients"
    if winner.candidate == DEFAULTS:
        p95_ms = _format_number(winner.p95_ms)
        return [Text(f"Keep the defaults: {rate}, p95 {p95_ms} ms; {_why_defaults(report, winner)}.", "bold green")]
    if confirmation.gain is None:
        gain = f"the defaults do not keep {settings.p95_ms:g} ms"
    else:
        defaults_per_s = confirmation.defaults.per_s if confirmation.defaults else 0.0
        gain = f"{confirmation.gain:+.0%} over the defaults' {_format_number(defaults_per_s)}"
    text = f"Set this for {rate}, p95 {_format_number(winner.p95_ms)} ms ({gain}), in the environment of the workers:"
    return [Text(text, style="bold green"), *environment_lines(winner)]


def _why_defaults(report: TuneReport, defaults: RoundMedians) -> str:
    """Returns what became of the other candidates; of one with a better median, that it was not better each time."""
    rounds, budget_ms = report.search.rounds, report.settings.p95_ms
    if not rounds:
        return f"nothing beat them by {MARGIN:.0%}"
    medians = [best_medians(each, rounds[each], budget_ms) for each in rounds if each != DEFAULTS]
    best = max(filter(None, medians), key=lambda each: each.per_s, default=defaults)
    if best.per_s <= defaults.per_s:
        return "nothing was better beyond noise"
    gain = f"{best.per_s / defaults.per_s - 1:+.1%}"
    return f"{describe_candidate(best.candidate)} had {gain} in the median, which is within the noise of the rounds"


def environment_lines(winner: RoundMedians) -> list[Text]:
    """Returns the settings of the winner as lines of an environment."""
    return [Text(f"{variable_of(name)}={value}") for name, value in sorted(winner.candidate)]


def _nothing_within_budget(report: TuneReport) -> list[Text]:
    budget = f"Nothing keeps p95 within {report.settings.p95_ms:g} ms."
    lowest = report.lowest
    if lowest is None or math.isnan(lowest[1].p95_ms):
        return [Text(f"{budget} No request was answered.", style="bold red")]
    candidate, measurement = lowest
    clients = _count_clients(measurement.clients)
    p95_ms = _format_number(measurement.p95_ms)
    settings = f"with {describe_candidate(candidate)} and {clients}"
    if measurement.p95_ms <= report.settings.p95_ms:  # in the search, but not in the rounds that followed
        text = (
            f"Nothing kept p95 within {report.settings.p95_ms:g} ms each time: it was {p95_ms} ms once, {settings}. "
            "Measure again with nothing else running here, or with a longer --duration."
        )
    else:
        text = f"{budget} The lowest: {p95_ms} ms, {settings}."
    return [Text(text, style="bold red")]


def _interrupted(report: TuneReport) -> list[Text]:
    within = {candidate: result for candidate, result in report.search.results.items() if result.best is not None}
    text = [
        Text(
            f"{report.ended_by}: the best candidate has not run in all rounds, alternating with the defaults, so it "
            "may be luck.",
            style="yellow",
        )
    ]
    if within:
        candidate = max(within, key=lambda each: within[each].per_s)
        text.append(Text(f"Best candidate so far: {describe_candidate(candidate)}.", style="bold"))
    return text


def _all_warnings(report: TuneReport) -> list[str]:
    return [*sorted(report.warnings), *_disturbance_warnings(report), *_few_answers_warnings(report)]


def _disturbance_warnings(report: TuneReport) -> list[str]:
    """Returns a warning if the rates of any candidate at the same load differ by more than DISTURBED_FACTOR."""
    search = report.search
    rates: dict[tuple[Candidate, int], list[float]] = {}
    for candidate, result in search.results.items():
        again = [search.recheck] if search.recheck is not None and candidate == DEFAULTS else []
        for measurement in [*result.measurements, *search.rounds.get(candidate, []), *again]:
            rates.setdefault((candidate, measurement.clients), []).append(measurement.per_s)
    worst = max(rates, key=lambda load: max(rates[load]) / max(min(rates[load]), 1e-9), default=None)
    if worst is None or max(rates[worst]) <= DISTURBED_FACTOR * min(rates[worst]):
        return []
    (candidate, clients), low, high = worst, min(rates[worst]), max(rates[worst])
    text = (
        f"the measurement was disturbed: {describe_candidate(candidate)} had {_format_number(low)} to "
        f"{_format_number(high)} requests/s with {_count_clients(clients)}. Do not use this result: measure again with "
        "nothing else running here"
    )
    return [text]


def _few_answers_warnings(report: TuneReport) -> list[str]:
    """Returns a warning if the p95 of some loads is that of a few answers."""
    few = [
        measurement.answers
        for result in report.search.results.values()
        for measurement in result.measurements
        if measurement.answers < MIN_ANSWERS
    ]
    if not few:
        return []
    return [f"{len(few)} loads had fewer than {MIN_ANSWERS} answers (minimum: {min(few)}): use a longer --duration"]


def as_dict(report: TuneReport) -> dict[str, Any]:
    """Returns the report as values for JSON; missing values are null."""
    search, confirmation = report.search, report.confirmation
    winner = confirmation.winner if confirmation else None
    return {
        "version": __version__,
        "settings": report.settings.model_dump(mode="json"),
        "given": dict(report.worker_settings),
        "ended_early": confirmation is None,
        "tried": [
            {
                "setting": dict(candidate),
                "dropped": result.dropped,
                "best": _measurement_dict(result.best),
                "loads": [_measurement_dict(measurement) for measurement in result.measurements],
            }
            for candidate, result in search.results.items()
        ],
        "rounds": [
            {"setting": dict(candidate), "loads": [_measurement_dict(measurement) for measurement in measurements]}
            for candidate, measurements in search.rounds.items()
        ],
        "recheck": _measurement_dict(search.recheck),
        "recommended": None
        if winner is None
        else {**_medians_dict(winner), "gain": confirmation.gain if confirmation else None},
        "defaults": _medians_dict(confirmation.defaults) if confirmation and confirmation.defaults else None,
        "warnings": _all_warnings(report),
    }


def as_json(report: TuneReport) -> str:
    """Returns the report as indented JSON."""
    return json.dumps(as_dict(report), indent=2) + "\n"


def _measurement_dict(measurement: Measurement | None) -> dict[str, Any] | None:
    if measurement is None:
        return None
    return {name: None if math.isnan(value) else value for name, value in asdict(measurement).items()}


def _medians_dict(medians: RoundMedians) -> dict[str, Any]:
    values = asdict(medians)
    del values["candidate"]
    return {"choice": None, **values, "setting": dict(medians.candidate)}


def _one_per_line(candidate: Candidate) -> Text:
    return Text(describe_candidate(candidate).replace(", ", "\n"))


def _table(*headings: str) -> PlainTable:
    table = plain_table(headings[0])
    table.add_columns(*headings[1:-1], justify="right")
    table.add_columns(headings[-1])
    return table


def _count_clients(clients: int) -> str:
    return f"{clients:,} client{'' if clients == 1 else 's'}"


def _format_number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.1f}"
