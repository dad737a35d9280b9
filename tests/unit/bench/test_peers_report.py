"""What the tables say of the servers, and of those that did not start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.document import MissingBlockError
from bench.machine import ROOT
from bench.peers.comparison import ONE_GATEWAY, REDBATCH, TWO_GATEWAYS, Failure, Run
from bench.peers.report import as_json, document, failure_list, rate_table, ratio_table, tables, trial_table, write


def run(number: int, server: str, configuration: str, cell: str, *figures: float) -> Run:
    """Returns a run with a rate, a median latency and failed requests."""
    names = ("requests_per_s", "p50_ms", "errors")
    return Run(number, server, configuration, cell, dict(zip(names, (*figures, 0.0)[:3], strict=True)))


RUNS = [
    run(0, "mosec", "32, 5 ms", "null-64", 90, 9),
    run(0, "mosec", "64, 10 ms", "null-64", 80, 9),
    *(run(number, REDBATCH, ONE_GATEWAY, "null-64", 100 * number, 5) for number in (1, 2, 3)),
    *(run(number, "mosec", "32, 5 ms", "null-64", 100, 9, 2) for number in (1, 2, 3)),
    *(run(number, REDBATCH, TWO_GATEWAYS, "null-256", 400, 7) for number in (1, 2, 3)),
]
FAILURES = [
    Failure(0, "infinity", "32", "minilm", f"it ended with 1\nTraceback\nImportError: no {ROOT}/optimum\n"),
    Failure(2, "ray", "", "", "no answer in 240 s"),
]
CHOICE = {("mosec", "null-64"): "32, 5 ms"}
RUN = {"started": "2026-11-21 10:05", "commit": "abc1234", "repetitions": 3}
Results = dict[str, Any]


@pytest.fixture(scope="module")
def found() -> Results:
    """Returns the results, through JSON."""
    read: Results = json.loads(json.dumps(as_json(RUNS, FAILURES, CHOICE, RUN)))
    return read


def cells_of(table: str, name: str) -> list[str]:
    """Returns the cells of the one row that begins so."""
    (row,) = [line for line in table.splitlines() if line.startswith(f"| {name}")]
    return [cell.strip() for cell in row.split("|")[2:-1]]


def test_a_server_has_the_median_of_the_rounds_and_not_of_the_trial(found: Results) -> None:
    """Rate, median latency, and failed requests where there are any."""
    assert cells_of(rate_table(found), "Redbatch 0.1.0, 1 gateway") == ["200 (5.00)", "–"]
    assert cells_of(rate_table(found), "mosec 0.9.8, with orjson") == ["100 (9.00, 2 failed)", "–"]


def test_requests_that_failed_in_one_round_only_are_told() -> None:
    """The median of the rounds has none of them; the most of a round is told."""
    runs = [
        run(number, "mosec", "32, 5 ms", "null-64", 100, 9, errors) for number, errors in ((1, 0), (2, 1234), (3, 0))
    ]
    assert cells_of(rate_table(as_json(runs, [], CHOICE, RUN)), "mosec 0.9.8, with orjson") == [
        "100 (9.00, 1,234 failed)"
    ]


def test_the_tables_say_when_it_was_and_of_which_commit(found: Results) -> None:
    """A figure without them cannot be looked up."""
    assert "; 2026-11-21 10:05 UTC, commit abc1234, 3 rounds. " in tables(found)
    assert "1 round. " in tables(found | {"repetitions": 1})


def test_redbatch_has_a_line_for_two_gateways(found: Results) -> None:
    """With what was measured on them."""
    assert cells_of(rate_table(found), "Redbatch 0.1.0, 2 gateways") == ["–", "400 (7.00)"]


def test_peers_are_compared_by_the_median_ratio(found: Results) -> None:
    """With the least and the most of the rounds."""
    assert cells_of(ratio_table(found), "mosec, with orjson") == ["2.00 (1.00 to 3.00)", "–"]


def test_every_configuration_that_was_tried_is_told(found: Results) -> None:
    """Those that do not count too."""
    assert cells_of(trial_table(found), "mosec, with orjson | 64, 10 ms")[1:] == ["80.0 (9.00)", "–"]


def test_a_peer_that_did_not_start_is_in_the_tables_with_its_reason(found: Results) -> None:
    """It has an empty row, and a line with what is wrong and the last that it said: no path of this machine."""
    assert cells_of(rate_table(found), "Infinity") == ["–", "–"]
    assert failure_list(found).splitlines() == [
        "- Infinity (32, minilm), before the rounds: it ended with 1: `ImportError: no ./optimum`",
        "- Ray Serve, round 2: no answer in 240 s",
    ]
    assert failure_list(found) in tables(found)


def test_without_redbatch_there_is_nothing_to_compare() -> None:
    """A run of peers alone says what they did."""
    text = tables(as_json([each for each in RUNS if each.server != REDBATCH], [], CHOICE, RUN))
    assert "divided by" not in text
    assert cells_of(text, "mosec 0.9.8, with orjson") == ["100 (9.00, 2 failed)"]


def test_where_nothing_failed_nothing_is_said_of_failures() -> None:
    """And where nothing was tried, nothing of trials: a quick run takes the first configurations."""
    text = tables(as_json([each for each in RUNS if each.round], [], CHOICE, RUN))
    assert "Failures" not in text
    assert "tried" not in text


def test_the_document_gets_the_tables_at_their_place(found: Results, tmp_path: Path) -> None:
    """And keeps everything around them. Without the place nothing is written."""
    page = tmp_path / "performance.md"
    page.write_text("before\n\n<!-- bench:peers -->\nold\n<!-- end -->\n\nbehind\n", encoding="utf-8")
    document(found, page)
    assert page.read_text(encoding="utf-8") == (
        f"before\n\n<!-- bench:peers -->\n\n{tables(found)}\n\n<!-- end -->\n\nbehind\n"
    )
    page.write_text("no place\n", encoding="utf-8")
    with pytest.raises(MissingBlockError):
        document(found, page)


def test_results_are_written_as_they_are_read(found: Results, tmp_path: Path) -> None:
    """In a folder that is made for them."""
    write(found, tmp_path / "results" / "peers.json")
    assert json.loads((tmp_path / "results" / "peers.json").read_text(encoding="utf-8")) == found
