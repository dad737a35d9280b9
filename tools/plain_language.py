"""Finds words that plain technical English does without, in comments, docstrings, messages and documents.

Run by `make check`. A line may be exempt if it says why: `# language: a quotation`.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BANNED = {
    "told": "reports, sends, knows",
    "asked": "requested, called",
    "whoever": "the client, the worker, the caller",
    "nobody": "no client, no worker",
    "so many": "at most N, up to N",
    "so much": "at most N, up to N",
    "so long": "for N seconds, this long",
    "as many as": "up to, at most",
    "has had": "has received, has used",
    "of its own": "its own X, a separate X",
    "of their own": "their own X, separate Xs",
    "be it": "whether X or Y",
    "for whom": "name the client or the worker",
    "anew": "again",
}
"""Each with what to write instead. Short on purpose: these stood for translated sentences, which hid the subject."""

_BANNED = re.compile(r"\b(" + "|".join(BANNED) + r")\b", re.IGNORECASE)
_EXEMPT = re.compile(r"\blanguage: \S")
_FENCE = re.compile(r"^\s*(```|~~~)")
_INLINE_CODE = re.compile(r"`[^`]*`")
_HASH_COMMENTS = (".yml", ".yaml", ".toml", ".sh", ".env", ".conf", ".txt", "Makefile", "Dockerfile", "run")


class Finding(NamedTuple):
    """A banned word and where it is."""

    path: str
    line: int
    word: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: “{self.word}”: write {BANNED[self.word.lower()]}"


def find(path: str, text: str) -> list[Finding]:
    """Returns the banned words in the prose of a file; which part is prose depends on the kind of file."""
    lines = text.splitlines()
    return [
        Finding(path, number, match[0])
        for number, prose in _prose(path, text)
        if not _EXEMPT.search(lines[number - 1])
        for match in _BANNED.finditer(prose)
    ]


def _prose(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yields line numbers, from 1, and the prose on these lines."""
    if path.endswith(".py"):
        yield from _python(text, tests=path.startswith("tests/"))
    elif path.endswith(".md"):
        yield from _markdown(text)
    elif path.endswith(".lua"):
        yield from ((number, line.partition("--")[2]) for number, line in enumerate(text.splitlines(), 1))
    elif path.endswith(_HASH_COMMENTS):
        yield from ((number, line.partition("#")[2]) for number, line in enumerate(text.splitlines(), 1))


def _python(text: str, *, tests: bool) -> Iterator[tuple[int, str]]:
    """Comments, docstrings, and strings with a space in them; the data of tests may hold any word."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.string.endswith('"""')
        message = not tests and " " in token.string
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and (docstring or message)):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, _INLINE_CODE.sub("", line)


def _markdown(text: str) -> Iterator[tuple[int, str]]:
    """Everything but code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, _INLINE_CODE.sub("", line)


def tracked_files() -> list[str]:
    """Returns the files that git tracks below the current folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True)  # noqa: S607 - the contributor's git
    return [name for name in listed.stdout.split("\0") if name]


def main() -> int:
    """Checks all tracked files; returns the exit code: 1 if there is a banned word."""
    findings: list[Finding] = []
    for name in tracked_files():
        path = Path(name)
        if name != "tools/plain_language.py" and path.suffix != ".lock" and path.is_file():
            findings += find(name, path.read_text(encoding="utf-8", errors="replace"))
    for finding in findings:
        sys.stderr.write(f"{finding}\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
