"""Writes tables and pictures of the results of `make bench` into docs: `python -m bench.document`.

The results are not in the repository, the tables and pictures are. A page is written from results of all parts only, so
that no table is lost.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import plots, results, tables
from bench.machine import ROOT, run_line

PATH = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
TABLES: Mapping[str, tuple[str, Callable[[Mapping[str, tables.Rows]], str]]] = {
    "plumbing": ("plumbing", tables.plumbing),
    "generators": ("plumbing", tables.generators),
    "plumbing-cost": ("plumbing", tables.plumbing_cost),
    "real": ("real", tables.real),
    "real-cost": ("real", tables.real_cost),
    "limit": ("real", tables.limit),
    "gaps": ("real", tables.gaps),
    "alone": ("real", tables.alone),
    "one-request": ("real", tables.one_request),
    "redis": ("cost", tables.redis),
    "held": ("cost", tables.held),
    "http": ("cost", tables.http),
    "backends": ("backends", tables.backends),
}
"""By the name of their place in the document: the part that must have run, and what makes the table."""


class NoPlace(LookupError):
    """The document has no place of that name."""


def with_block(text: str, name: str, block: str) -> str:
    """Returns a document with what stands between `<!-- bench:NAME -->` and `<!-- end -->` replaced. Raises NoPlace."""
    place = re.compile(rf"(<!-- bench:{re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if place.search(text) is None:
        raise NoPlace(f"there is no <!-- bench:{name} --> with an <!-- end --> behind it")
    return place.sub(lambda found: f"{found[1]}\n{block}\n\n{found[2]}", text)


def filled(text: str, found: results.Results) -> str:
    """Returns the document with the tables of all results. Raises MissingResultsError if a part has no results."""
    results.require_parts(found, dict.fromkeys(part for part, _ in TABLES.values()), f"docs/{PATH.name}")
    parts = found["parts"]
    everything = {name: rows for part in parts.values() for name, rows in part["tables"].items()}
    text = with_block(text, "machine", machine_line(found))
    for name, (_, table) in TABLES.items():
        text = with_block(text, name, table(everything))
    return text


def machine_line(found: results.Results) -> str:
    """Returns a sentence about the machine, the versions, and when it was; of each part, if they ran apart."""
    facts: Mapping[str, Any] = found["machine"]
    lines = {name: run_line(part) for name, part in found["parts"].items()}
    together = len(set(lines.values())) == 1
    runs = next(iter(lines.values())) if together else "; ".join(f"{name}: {line}" for name, line in lines.items())
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, {facts['system']}; "
        f"Python {facts['python']}, torch {facts['torch']}, sentence-transformers {facts['sentence_transformers']}, "
        f"Redis {facts['redis']}, Redbatch {facts['redbatch']}; {runs}."
    )


def write(found: results.Results, path: Path = PATH, images: Path = IMAGES) -> None:
    """Writes the tables into the document, and the pictures beside it. Raises MissingResultsError."""
    path.write_text(filled(path.read_text(encoding="utf-8"), found), encoding="utf-8")
    plots.draw(found, images)


if __name__ == "__main__":
    try:
        write(results.read())
    except results.MissingResultsError as error:
        sys.exit(f"bench: {error}")
