"""The table of the faults: a later run of some tests replaces their rows and leaves the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.report import FAULT, RUN, WHOLE, make_block, merge_rows, pytest_terminal_summary

EARLIER, LATER, LAST = (f"2026-01-0{day} 10:00 UTC, commit c{day}." for day in (1, 2, 3))


def row(fault: str, calls: str, test: str, others: str = "") -> list[str]:
    """Returns the cells of a row."""
    return [fault, calls, "0", "0", "0", "0.1", others, f"`{test}`"]


ROWS = [row("F2 killed", "1", "test_a"), row("F2 hangs", "2", "test_a"), row("F10 lost", "3", "test_b", "kills 3, a 1")]


def test_rows_of_a_later_run_replace_those_of_the_same_faults() -> None:
    """Other rows stay, new ones are added in the order of the faults, and each run is named with its tests."""
    block = make_block(ROWS, EARLIER)
    later = [row("F2 hangs", "9", "test_a"), row("F3 new", "4", "test_c")]
    expected = make_block([later[0], ROWS[0], later[1], ROWS[2]], f"{EARLIER}\n`test_a`, `test_c`: {LATER}")
    assert merge_rows(block, later, LATER) == expected


def test_a_run_that_is_repeated_is_named_once() -> None:
    """The line of the earlier run of the same tests is replaced."""
    once = merge_rows(make_block(ROWS, EARLIER), ROWS[2:], LATER)
    assert merge_rows(once, ROWS[2:], LAST) == once.replace(LATER, LAST)
    assert merge_rows(once, ROWS[:2], LAST).split("\n\n")[0] == "\n".join(
        [EARLIER, f"`test_b`: {LATER}", f"`test_a`: {LAST}"]
    )


def test_a_test_that_fails_leaves_the_rows_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are written as those of a part of the tests; the log names what failed."""
    written: list[Any] = []
    monkeypatch.setattr("tests.chaos.report._write", lambda rows, _, *, is_whole: written.append((rows, is_whole)))
    stats = {
        "": [teardown("a", "F1"), teardown("b", "F2")],
        "passed": [teardown("a", "F1", when="call")],
        "failed": [teardown("b", "F2", when="call")],
    }
    lines: list[str] = []
    reporter: Any = SimpleNamespace(stats=stats, write_line=lines.append)
    config: Any = SimpleNamespace(stash={RUN: {}}, args=WHOLE, getoption=lambda _: "")
    pytest_terminal_summary(reporter, pytest.ExitCode.TESTS_FAILED, config)
    assert written == [([("a", {"fault": "F1"})], False)]
    assert lines == ["It failed, so its rows were not written: b"]


def teardown(nodeid: str, fault: str, when: Any = "teardown") -> pytest.TestReport:  # noqa: ANN401 - one of pytest's
    """Returns the report of a phase of a test that noted a fault."""
    properties = [(FAULT, {"fault": fault})]
    return pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, when, user_properties=properties)
