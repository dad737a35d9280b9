"""Flags of the benchmarks that have several names."""

from __future__ import annotations

from collections.abc import Sequence

import typer


def parse_names(flag: str, text: str, known: Sequence[str]) -> list[str]:
    """Returns the names in a text, which commas separate. Raises BadParameter: one of them is not known."""
    names = text.split(",")
    if unknown := sorted(set(names) - set(known)):
        raise typer.BadParameter(f"{flag}: {', '.join(unknown)}: choose from {', '.join(known)}")
    return names
