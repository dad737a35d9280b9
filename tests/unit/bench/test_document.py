"""Replacement of the tables in a document."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench import document
from bench.document import machine_line, make_blocks, replace_block, write_blocks
from bench.results import MissingResultsError, Results
from tools.blocks import MissingBlockError

TEXT = "# Title\n\n<!-- bench:a -->\nold\n<!-- end -->\n\nprose\n\n<!-- bench:b -->\n<!-- end -->\n"
FACTS = ("cpu", "cores", "memory_gb", "system", "python", "torch", "sentence_transformers", "redis", "redbatch")
MACHINE = {fact: f"<{fact}>" for fact in FACTS}
TABLES = (
    "null",
    "null-inputs",
    "generators",
    "redis",
    "processes",
    "http",
    "real",
    "limit",
    "best",
    "single-client",
    "one-request",
    "backends",
)
EMPTY: dict[str, list[dict[str, object]]] = {name: [] for name in TABLES}
RUN: dict[str, object] = {"started": "D", "commit": "c1", "repetitions": 3}
MEASURED: Results = {
    "machine": MACHINE,
    "parts": {part: RUN | {"tables": EMPTY} for part, _ in document.TABLES.values()},
}


def test_a_block_replaces_the_text_between_its_markers() -> None:
    """The prose and the other blocks do not change."""
    assert replace_block(TEXT, "a", "| new \\1 |") == TEXT.replace("old\n", "\n| new \\1 |\n\n")
    assert replace_block(TEXT, "b", "x") == TEXT.replace("b -->\n", "b -->\n\nx\n\n")


def test_writing_twice_equals_writing_once() -> None:
    """A block replaces the previous one."""
    once = replace_block(replace_block(TEXT, "a", "1"), "b", "2")
    assert replace_block(replace_block(once, "a", "1"), "b", "2") == once
    assert replace_block(once, "a", "3") == replace_block(replace_block(TEXT, "a", "3"), "b", "2")


def test_a_document_without_the_block_is_an_error() -> None:
    """The error has the name of the block."""
    with pytest.raises(MissingBlockError, match="bench:c"):
        replace_block(TEXT, "c", "x")


def test_the_pages_have_a_block_for_each_table(tmp_path: Path) -> None:
    """Each of a small set of results, and the line about the machine, replaces a block of one of the pages."""
    pages = [Path(shutil.copy(page, tmp_path)) for page in document.PAGES]
    made = make_blocks(MEASURED)
    assert made["machine"] == machine_line(MEASURED)
    write_blocks(made, pages)
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert {name: text.count(f"<!-- bench:{name} -->\n\n{block}\n\n<!-- end -->") for name, block in made.items()} == (
        dict.fromkeys(["machine", *document.TABLES], 1)
    )


def test_a_missing_block_changes_no_page(tmp_path: Path) -> None:
    """The first of two blocks is there, the other is not: the page stays as it was."""
    page = tmp_path / "page.md"
    page.write_text(TEXT, encoding="utf-8")
    with pytest.raises(MissingBlockError, match="bench:c"):
        write_blocks({"a": "new", "c": "x"}, [page])
    assert page.read_text(encoding="utf-8") == TEXT


def test_results_of_some_parts_replace_no_table() -> None:
    """The error names the missing parts and the command that measures them."""
    found = {"machine": MACHINE, "parts": {"null": RUN | {"tables": {}}, "cost": RUN | {"tables": {}}}}
    with pytest.raises(MissingResultsError, match=r'lacks real, backends\. .*ARGS="--only real,backends"'):
        make_blocks(found)


@pytest.mark.parametrize(
    ("commits", "runs"),
    [
        (("c1", "c1"), "; D UTC, commit c1, 3 rounds."),
        (("c1", "c2"), "; a: D UTC, commit c1, 3 rounds; b: D UTC, commit c2, 3 rounds."),
    ],
)
def test_the_machine_line_has_time_and_commit(commits: tuple[str, str], runs: str) -> None:
    """It has them once if all parts are from one run, otherwise for each part."""
    parts = {
        name: {"started": "D", "commit": commit, "repetitions": 3, "tables": {}}
        for name, commit in zip("ab", commits, strict=True)
    }
    line = machine_line({"machine": MACHINE, "parts": parts})
    assert all(f"<{fact}>" in line for fact in FACTS)
    assert line.endswith(runs)
