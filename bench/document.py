"""Writes tables and pictures of the results of `make bench` into docs: `python -m bench.document`.

The results are not in the repository, the tables and pictures are. A page is written from results of all parts only, so
that no table is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import plots, results, tables
from bench.machine import ROOT, describe_run
from tools import blocks

PATH = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
TABLES: Mapping[str, tuple[str, Callable[[Mapping[str, tables.Rows]], str]]] = {
    "null": ("null", tables.null_model),
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


def fill_tables(text: str, measured: results.Results) -> str:
    """Returns the document with the tables of all results. Raises MissingResultsError if a part has no results."""
    results.require_parts(measured, dict.fromkeys(part for part, _ in TABLES.values()), f"docs/{PATH.name}")
    parts = measured["parts"]
    all_rows = {name: rows for part in parts.values() for name, rows in part["tables"].items()}
    text = replace_block(text, "machine", machine_line(measured))
    for name, (_, table) in TABLES.items():
        text = replace_block(text, name, table(all_rows))
    return text


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


def write(measured: results.Results, path: Path = PATH, images: Path = IMAGES) -> None:
    """Writes the tables into the document, and the pictures to docs/images. Raises MissingResultsError."""
    path.write_text(fill_tables(path.read_text(encoding="utf-8"), measured), encoding="utf-8")
    plots.draw(measured, images)


if __name__ == "__main__":
    try:
        write(results.read())
    except results.MissingResultsError as error:
        sys.exit(f"bench: {error}")
