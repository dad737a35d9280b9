"""What came of the search, as people read it and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from redbatch.tune.confirmation import Confirmation, RoundMedians, medians_by_clients
from redbatch.tune.load_runner import MIN_ANSWERS
from redbatch.tune.measurement import MARGIN, Measurement, TrialResult
from redbatch.tune.search import Search
from redbatch.tune.search_space import DEFAULTS, Candidate, describe_candidate
from redbatch.tune.settings import TuneSettings
from shared.process.settings import variable_of
from shared.process.version import __version__

FILE_WIDTH = 150
"""Of a file or a pipe, which has no width of its own."""


@dataclass(frozen=True, slots=True)
class TuneReport:
    """What there is to report: of the search, the worker settings that the user gave, and what makes it doubtful."""

    settings: TuneSettings
    given: Mapping[str, str]
    session: Search
    doubts: Collection[str]

    @property
    def verdict(self) -> Confirmation | None:
        """Who wins; None when the search was ended early."""
        return self.session.verdict

    @property
    def lowest(self) -> tuple[Candidate, Measurement] | None:
        """The lowest p95 of all, and with what."""
        points = [(choice, found.lowest) for choice, found in self.session.found.items()]
        return min(points, key=lambda each: (not each[1].answers, each[1].p95_ms), default=None)


def print_report(outcome: TuneReport, console: Console | None = None) -> None:
    """Prints it to stdout."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print(as_text(outcome), soft_wrap=True)


def as_text(outcome: TuneReport) -> Group:
    """Returns the table of what was tried, that of the finals, and what to set."""
    session, settings = outcome.session, outcome.settings
    if not session.found:
        return Group(Text("Nothing was measured yet."))
    parts: list[RenderableType] = [_title(outcome), trial_table(session.found, settings.p95_ms)]
    if session.rounds and outcome.verdict is not None:
        parts += ["", Text(f"In turn, {settings.rounds} rounds (medians):", style="bold"), _confirmation_table(outcome)]
    parts += ["", *conclusion(outcome)]
    parts += [
        Text(f"warning: {text}", style="yellow") for text in [*sorted(outcome.doubts), *_few_answers_warnings(outcome)]
    ]
    return Group(*parts)


def _title(outcome: TuneReport) -> Text:
    settings = outcome.settings
    texts = str(settings.texts) if settings.texts else f"{settings.mix} texts"
    each = f", {settings.inputs_per_request:,} in a request" if settings.inputs_per_request > 1 else ""
    kept = "".join(f", {name}={value}" for name, value in sorted(outcome.given.items()) if name != "model")
    model = outcome.given.get("model", "minilm")
    return Text(f"{model}{kept}: p95 within {settings.p95_ms:g} ms, {texts}{each}", style="bold")


def trial_table(found: Mapping[Candidate, TrialResult], budget_ms: float) -> Table:
    """Returns a row for each setting: its best load within the budget, or the one that missed it by least."""
    table = _table("setting", "clients", "requests/s", "p50 ms", "p95 ms", "")
    for choice, result in found.items():
        point = result.best or result.lowest
        table.add_row(
            _one_per_line(choice),
            f"{point.clients:,}",
            *(_format_number(value) for value in (point.per_s, point.p50_ms, point.p95_ms)),
            _remark(result, budget_ms),
            style="" if result.best else "dim",
        )
    return table


def _remark(found: TrialResult, budget_ms: float) -> str:
    if found.best is None:
        errors = f", {found.lowest.errors:,} failed" if found.lowest.errors else ""
        return ("over, no faster" if found.dropped else "over the budget") + errors
    over = [point for point in found.points if not point.within(budget_ms) and point.clients > found.best.clients]
    if not over:
        return "flat beyond"
    first = min(over, key=lambda point: point.clients)
    return f"{first.clients:,} clients: {_format_number(first.p95_ms)} ms"


def _confirmation_table(outcome: TuneReport) -> Table:
    table = _table("setting", "clients", "requests/s", "p50 ms", "p95 ms", "rounds")
    for choice, points in outcome.session.rounds.items():
        for final in medians_by_clients(choice, points):
            figures = (final.per_s, final.p50_ms, final.p95_ms)
            runs = f"{_format_number(min(final.runs))} to {_format_number(max(final.runs))}"
            table.add_row(
                _one_per_line(choice), f"{final.clients:,}", *(_format_number(value) for value in figures), runs
            )
    return table


def conclusion(outcome: TuneReport) -> list[Text]:
    """Returns what to do, in lines to paste."""
    verdict, settings = outcome.verdict, outcome.settings
    if verdict is None:
        return _ended_early(outcome)
    winner = verdict.winner
    if winner is None:
        return _nothing_within_budget(outcome)
    rate = f"{_format_number(winner.per_s)} requests/s with {winner.clients:,} clients"
    if winner.choice == DEFAULTS:
        what = "nothing was better beyond noise" if outcome.session.rounds else f"nothing beat them by {MARGIN:.0%}"
        return [
            Text(f"Keep the defaults: {rate}, p95 {_format_number(winner.p95_ms)} ms; {what}.", style="bold green"),
        ]
    if verdict.gain is None:
        gain = f"the defaults do not keep {settings.p95_ms:g} ms"
    else:
        gain = f"{verdict.gain:+.0%} over the defaults' {_format_number(verdict.defaults.per_s if verdict.defaults else 0.0)}"
    return [
        Text(f"Set this for {rate}, p95 {_format_number(winner.p95_ms)} ms ({gain}):", style="bold green"),
        *environment_lines(winner),
    ]


def environment_lines(winner: RoundMedians) -> list[Text]:
    """Returns a setting as lines of an environment."""
    return [Text(f"{variable_of(name)}={value}") for name, value in sorted(winner.choice)]


def _nothing_within_budget(outcome: TuneReport) -> list[Text]:
    budget = f"Nothing keeps p95 within {outcome.settings.p95_ms:g} ms."
    lowest = outcome.lowest
    if lowest is None or math.isnan(lowest[1].p95_ms):
        return [Text(f"{budget} No request was answered.", style="bold red")]
    choice, point = lowest
    clients = f"{point.clients:,} client{'' if point.clients == 1 else 's'}"
    return [
        Text(
            f"{budget} The lowest: {_format_number(point.p95_ms)} ms, with {describe_candidate(choice)} and {clients}.",
            style="bold red",
        )
    ]


def _ended_early(outcome: TuneReport) -> list[Text]:
    within = {choice: found for choice, found in outcome.session.found.items() if found.best is not None}
    said = [
        Text(
            "Ended early: what looks best has not been run again, in turn with the defaults, so it may be luck.",
            style="yellow",
        )
    ]
    if within:
        choice = max(within, key=lambda each: within[each].per_s)
        said.append(Text(f"The best so far: {describe_candidate(choice)}.", style="bold"))
    return said


def _few_answers_warnings(outcome: TuneReport) -> list[str]:
    """Says so when a p95 is that of a handful of answers."""
    few = [
        point.answers
        for found in outcome.session.found.values()
        for point in found.points
        if point.answers < MIN_ANSWERS
    ]
    if not few:
        return []
    return [f"{len(few)} loads had fewer than {MIN_ANSWERS} answers (the least: {min(few)}): give a longer --duration"]


def as_dict(outcome: TuneReport) -> dict[str, Any]:
    """Returns everything as JSON has it; what has no value is null."""
    session, verdict = outcome.session, outcome.verdict
    winner = verdict.winner if verdict else None
    return {
        "version": __version__,
        "settings": outcome.settings.model_dump(mode="json"),
        "given": dict(outcome.given),
        "ended_early": verdict is None,
        "tried": [
            {
                "setting": dict(choice),
                "dropped": found.dropped,
                "best": _measurement_dict(found.best),
                "loads": [_measurement_dict(point) for point in found.points],
            }
            for choice, found in session.found.items()
        ],
        "rounds": [
            {"setting": dict(choice), "loads": [_measurement_dict(point) for point in points]}
            for choice, points in session.rounds.items()
        ],
        "recommended": None if winner is None else {**_medians_dict(winner), "gain": verdict.gain if verdict else None},
        "defaults": _medians_dict(verdict.defaults) if verdict and verdict.defaults else None,
        "warnings": [*sorted(outcome.doubts), *_few_answers_warnings(outcome)],
    }


def as_json(outcome: TuneReport) -> str:
    """Returns everything as indented JSON."""
    return json.dumps(as_dict(outcome), indent=2) + "\n"


def _measurement_dict(point: Measurement | None) -> dict[str, Any] | None:
    if point is None:
        return None
    return {name: None if math.isnan(value) else value for name, value in asdict(point).items()}


def _medians_dict(final: RoundMedians) -> dict[str, Any]:
    return {**asdict(final), "choice": None, "setting": dict(final.choice)}


def _one_per_line(choice: Candidate) -> str:
    return describe_candidate(choice).replace(", ", "\n")


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number in {0, len(heads) - 1} else "right", overflow="fold")
    return table


def _format_number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.1f}"
