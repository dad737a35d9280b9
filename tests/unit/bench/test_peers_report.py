"""The tables of the servers, and the list of failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.machine import ROOT
from bench.peers.comparison import ONE_GATEWAY, REDBATCH, TWO_GATEWAYS, Failure, Run
from bench.peers.report import as_json, document, failure_list, rate_table, ratio_table, tables, trial_table, write
from tools.blocks import MissingBlockError


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
    """Returns the results after a round trip through JSON."""
    read: Results = json.loads(json.dumps(as_json(RUNS, FAILURES, CHOICE, RUN)))
    return read


def cells_of(table: str, name: str) -> list[str]:
    """Returns the cells of the only row that starts with this name."""
    (row,) = [line for line in table.splitlines() if line.startswith(f"| {name}")]
    return [cell.strip() for cell in row.split("|")[2:-1]]


def test_a_server_has_the_median_of_the_rounds_and_not_of_the_trial(found: Results) -> None:
    """A cell has rate, median latency, and failed requests, if any."""
    assert cells_of(rate_table(found), "Redbatch 0.1.0, 1 gateway") == ["200 (5.00)", "–"]
    assert cells_of(rate_table(found), "mosec 0.9.8, with orjson") == ["100 (9.00, 2 failed)", "–"]


def test_failed_requests_of_a_single_round_are_reported() -> None:
    """The table has the maximum of the rounds, as the median is 0."""
    runs = [
        run(number, "mosec", "32, 5 ms", "null-64", 100, 9, errors) for number, errors in ((1, 0), (2, 1234), (3, 0))
    ]
    assert cells_of(rate_table(as_json(runs, [], CHOICE, RUN)), "mosec 0.9.8, with orjson") == [
        "100 (9.00, 1,234 failed)"
    ]


def test_the_tables_have_time_and_commit(found: Results) -> None:
    """The number of rounds is in the singular for one round."""
    assert "; 2026-11-21 10:05 UTC, commit abc1234, 3 rounds. " in tables(found)
    assert "1 round. " in tables(found | {"repetitions": 1})


def test_redbatch_has_a_line_for_two_gateways(found: Results) -> None:
    """The line has the cells that were measured with them."""
    assert cells_of(rate_table(found), "Redbatch 0.1.0, 2 gateways") == ["–", "400 (7.00)"]


def test_peers_are_compared_by_the_median_ratio(found: Results) -> None:
    """The ratio has the minimum and the maximum of the rounds."""
    assert cells_of(ratio_table(found), "mosec, with orjson") == ["2.00 (1.00 to 3.00)", "–"]


def test_every_tried_configuration_has_a_row(found: Results) -> None:
    """Configurations that are not the best have a row too."""
    assert cells_of(trial_table(found), "mosec, with orjson | 64, 10 ms")[1:] == ["80.0 (9.00)", "–"]


def test_a_peer_that_did_not_start_is_in_the_tables_with_its_reason(found: Results) -> None:
    """It has an empty row, and a line with the error and the last log line, without paths of this machine."""
    assert cells_of(rate_table(found), "Infinity") == ["–", "–"]
    assert failure_list(found).splitlines() == [
        "- Infinity (32, minilm), before the rounds: it ended with 1: `ImportError: no ./optimum`",
        "- Ray Serve, round 2: no answer in 240 s",
    ]
    assert failure_list(found) in tables(found)


def test_without_redbatch_there_is_nothing_to_compare() -> None:
    """A run without Redbatch has the rates of the peers."""
    text = tables(as_json([each for each in RUNS if each.server != REDBATCH], [], CHOICE, RUN))
    assert "divided by" not in text
    assert cells_of(text, "mosec 0.9.8, with orjson") == ["100 (9.00, 2 failed)"]


def test_without_failures_there_is_no_list_of_failures() -> None:
    """Without trials, as in a quick run with the first configurations, there is no table of trials."""
    text = tables(as_json([each for each in RUNS if each.round], [], CHOICE, RUN))
    assert "Failures" not in text
    assert "tried" not in text


def test_the_document_gets_the_tables_in_their_block(found: Results, tmp_path: Path) -> None:
    """The text around them stays. Without the block, nothing is written."""
    page = tmp_path / "performance.md"
    page.write_text("before\n\n<!-- bench:peers -->\nold\n<!-- end -->\n\nbehind\n", encoding="utf-8")
    document(found, [page])
    assert page.read_text(encoding="utf-8") == (
        f"before\n\n<!-- bench:peers -->\n\n{tables(found)}\n\n<!-- end -->\n\nbehind\n"
    )
    page.write_text("no place\n", encoding="utf-8")
    with pytest.raises(MissingBlockError):
        document(found, [page])


def test_written_results_are_read_back(found: Results, tmp_path: Path) -> None:
    """Writing creates the folder."""
    write(found, tmp_path / "results" / "peers.json")
    assert json.loads((tmp_path / "results" / "peers.json").read_text(encoding="utf-8")) == found
