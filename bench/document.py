"""Writes tables and pictures of benchmarks into docs; `python -m bench.document` writes those of `make bench`.

The results are not in the repository, the tables and pictures are. The blocks of `make bench` are written from results
of all parts only, so that no table is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import plots, results, size_figures, tables
from bench.machine import ROOT, describe_run
from tools import blocks, documents

PAGES = (ROOT / "docs" / "performance.md", ROOT / "docs" / "measurements.md")
"""Those that `make bench` writes."""

ALL_PAGES = (*PAGES, ROOT / "docs" / "scaling.md")
"""The pages with blocks; each block is in one of them."""

IMAGES = ROOT / "docs" / "images"
TABLES: Mapping[str, tuple[str, Callable[[Mapping[str, tables.Rows]], str]]] = {
    "null": ("null", tables.null_model),
    "null-inputs": ("null", tables.null_inputs),
    "generators": ("null", tables.generators),
    "null-cost": ("null", tables.null_model_cost),
    "real": ("real", tables.real_model),
    "real-cost": ("real", tables.real_model_cost),
    "limit": ("real", tables.limit),
    "gaps": ("real", tables.gaps),
    "single-client": ("real", tables.single_client),
    "one-request": ("real", tables.one_request),
    "redis": ("cost", tables.redis),
    "processes": ("cost", tables.processes),
    "http": ("cost", tables.http),
    "backends": ("backends", tables.backends),
}
"""By name of the block in the document: the part with the results, and the function that formats the table."""


def replace_block(text: str, name: str, block: str) -> str:
    """Returns a document with the text of a block of the benchmarks replaced. Raises MissingBlockError."""
    return blocks.replace_block(text, f"bench:{name}", block)


def write_blocks(block_by_name: Mapping[str, str], pages: Sequence[Path] = ALL_PAGES) -> None:
    """Writes blocks into the pages that have them. Raises MissingBlockError before it changes a page."""
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    for name, block in block_by_name.items():
        page = next((page for page in pages if f"<!-- bench:{name} -->" in texts[page]), pages[0])
        texts[page] = replace_block(texts[page], name, block)
    for page, text in texts.items():
        page.write_text(text, encoding="utf-8")


def make_blocks(measured: results.Results) -> dict[str, str]:
    """Returns the blocks of `make bench` by name. Raises MissingResultsError if a part has no results."""
    results.require_parts(measured, dict.fromkeys(part for part, _ in TABLES.values()), f"docs/{PAGES[0].name}")
    parts = measured["parts"]
    all_rows = {name: rows for part in parts.values() for name, rows in part["tables"].items()}
    return {"machine": machine_line(measured)} | {name: table(all_rows) for name, (_, table) in TABLES.items()}


def machine_line(measured: results.Results) -> str:
    """Returns a line with the machine, the versions and the time of the run, or of each part if they ran separately."""
    facts: Mapping[str, Any] = measured["machine"]
    lines = {name: describe_run(part) for name, part in measured["parts"].items()}
    same_run = len(set(lines.values())) == 1
    runs = next(iter(lines.values())) if same_run else "; ".join(f"{name}: {line}" for name, line in lines.items())
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, {facts['system']}; "
        f"Python {facts['python']}, torch {facts['torch']}, sentence-transformers {facts['sentence_transformers']}, "
        f"Redis {facts['redis']}, Redbatch {facts['redbatch']}; {runs}."
    )


def write(measured: results.Results, pages: Sequence[Path] = PAGES, images: Path = IMAGES) -> None:
    """Writes the tables into the pages, the figures of `redbatch size` with its example, and the pictures.

    Raises MissingResultsError.
    """
    write_blocks(make_blocks(measured), pages)
    results.write(size_figures.size_figures(measured), size_figures.PATH)
    documents.main()
    plots.draw(measured, images)


if __name__ == "__main__":
    try:
        write(results.read())
    except results.MissingResultsError as error:
        sys.exit(f"bench: {error}")
