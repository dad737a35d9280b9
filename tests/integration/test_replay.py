"""A short run of the scripts on one server and on two, and the table that the document has."""

from __future__ import annotations

import json

import pytest

from bench import document, publication, replay
from bench.figures import Row, fold

pytestmark = pytest.mark.slow


def test_requests_pass_through_all_servers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each number of servers has its row, in the results and in the table; no document changes."""
    monkeypatch.setattr(replay, "WINDOW_S", 1.0)
    before = [page.read_text(encoding="utf-8") for page in document.ALL_PAGES]
    replay.main("1,2", 64, 1, quick=True)
    results = json.loads(publication.Publication(replay.BLOCK, replay.table, quick=True).path.read_text("utf-8"))
    assert (results["repetitions"], results["batch"]) == (1, 64)
    assert [row["of"] for row in results["tables"]] == [{"servers": 1}, {"servers": 2}]
    for row in results["tables"]:  # which have not used more CPU than a core for each server
        figures = {name: figure["median"] for name, figure in row["figures"].items()}
        assert figures["requests_per_s"] > 1_000
        assert 1 < figures["redis_us"] < row["of"]["servers"] * 1e6 / figures["requests_per_s"] * 1.1
    printed = capsys.readouterr().out
    assert printed.startswith(replay.table(results["tables"]))
    assert [page.read_text(encoding="utf-8") for page in document.ALL_PAGES] == before


def test_what_several_servers_would_do_is_calculated() -> None:
    """A core for each: servers by a million over the microseconds, and the cost of one over that of each."""
    costs = {1: (20.0, 22.0, 21.0), 2: (22.0, 25.0, 28.0)}
    rows = [
        Row(replay.BLOCK, {"servers": number}, {"requests_per_s": 1_000.0 * number, "redis_us": cost})
        for number, each in costs.items()
        for cost in each
    ]
    lines = replay.table([each.as_json() for each in fold(rows)]).splitlines()
    assert lines[2:] == ["| 1 | 1,000 | 21.0 | 47,619 | 1.00 |", "| 2 | 2,000 | 25.0 | 80,000 | 0.84 |"]
