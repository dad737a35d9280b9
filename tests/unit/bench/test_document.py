"""Tables find their place in the document, again and again."""

from __future__ import annotations

import pytest

from bench import document
from bench.document import NOT_MEASURED, NoPlaceError, filled, machine_line, with_block

TEXT = "# Title\n\n<!-- bench:a -->\nold\n<!-- end -->\n\nprose\n\n<!-- bench:b -->\n<!-- end -->\n"
NOTHING: dict[str, dict[str, object]] = {"machine": {}, "parts": {}}


def test_a_block_is_put_between_its_marks() -> None:
    """The prose and the other blocks stay as they are."""
    assert with_block(TEXT, "a", "| new \\1 |") == TEXT.replace("old\n", "\n| new \\1 |\n\n")
    assert with_block(TEXT, "b", "x") == TEXT.replace("b -->\n", "b -->\n\nx\n\n")


def test_to_write_twice_is_to_write_once() -> None:
    """A block replaces the one before."""
    once = with_block(with_block(TEXT, "a", "1"), "b", "2")
    assert with_block(with_block(once, "a", "1"), "b", "2") == once
    assert with_block(once, "a", "3") == with_block(with_block(TEXT, "a", "3"), "b", "2")


def test_a_document_without_the_place_is_an_error() -> None:
    """Its name is told."""
    with pytest.raises(NoPlaceError, match="bench:c"):
        with_block(TEXT, "c", "x")


def test_the_page_has_a_place_for_each_table() -> None:
    """What was not measured says so there."""
    page = filled(document.PATH.read_text(encoding="utf-8"), NOTHING)
    assert page.count(NOT_MEASURED) == len(document.TABLES) + 1


@pytest.mark.parametrize(
    ("commits", "runs"),
    [
        (("c1", "c1"), "; D UTC, commit c1, 3 rounds."),
        (("c1", "c2"), "; a: D UTC, commit c1, 3 rounds; b: D UTC, commit c2, 3 rounds."),
    ],
)
def test_the_machine_is_told_with_when_it_was_and_of_which_commit(commits: tuple[str, str], runs: str) -> None:
    """Once, if all parts are of one run; else of each."""
    facts = ("cpu", "cores", "memory_gb", "system", "python", "torch", "sentence_transformers", "redis", "redbatch")
    parts = {
        name: {"started": "D", "commit": commit, "repetitions": 3, "tables": {}}
        for name, commit in zip("ab", commits, strict=True)
    }
    line = machine_line({"machine": {fact: f"<{fact}>" for fact in facts}, "parts": parts})
    assert all(f"<{fact}>" in line for fact in facts)
    assert line.endswith(runs)
