"""Standard input as a file: it is copied to the disk, because a run reads its input several times."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redbatch.embed.readers import JSONL, TXT
from redbatch.terminal import print_line

STANDARD_INPUT = Path("-")


@contextmanager
def copy_of_input(source: Path, out: Path) -> Iterator[Path]:
    """Yields the path of the input: for STANDARD_INPUT that of a copy beside the output, which is then removed."""
    if source != STANDARD_INPUT:
        yield source
        return
    copy = out.with_name(f"{out.name}.stdin")
    if sys.stdin.isatty():
        print_line("Type texts, one on each line; Ctrl-D ends them.", to_stderr=True)
    try:
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def guess_format(path: Path) -> str:
    """Returns the format of an input without a name: JSON lines if its first line is an object or a text in JSON."""
    with path.open("rb") as file:
        first = file.readline()
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return TXT
    return JSONL if isinstance(value, dict | str) else TXT
