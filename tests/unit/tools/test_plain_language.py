"""The language step of `make check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import plain_language
from tools.plain_language import BANNED, find

WORD = next(iter(BANNED))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("module.py", f'"""What it is {WORD}."""\n'),
        ("module.py", f"value = 1  # what it is {WORD}\n"),
        ("module.py", f'raise ValueError("It was {WORD} otherwise.")\n'),
        ("tests/test_module.py", f'"""It is {WORD}."""\n'),
        ("docs/page.md", f"It is {WORD}.\n"),
        ("script.lua", f"-- It is {WORD}.\n"),
        ("k8s/base.yaml", f"# It is {WORD}.\n"),
    ],
)
def test_a_banned_word_in_prose_is_found(path: str, text: str) -> None:
    """A banned word in a docstring, comment, message or document is a finding with its line."""
    assert [(found.line, found.word) for found in find(path, text)] == [(1, WORD)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("module.py", f"{WORD} = 1\n"),
        ("module.py", f'FIELD = "{WORD}"\n'),
        ("module.py", f'"""The field `{WORD}` of an old version."""\n'),
        ("module.py", f"value = 1  # {WORD}; language: a quotation\n"),
        ("tests/test_module.py", f'post("It is {WORD}.")\n'),
        ("docs/page.md", f"```\n{WORD}\n```\n`{WORD}`\n"),
        ("script.lua", f'redis.call("GET", "{WORD}")\n'),
        ("data.json", f'"It is {WORD}."\n'),
    ],
)
def test_code_data_and_justified_lines_pass(path: str, text: str) -> None:
    """Names, fields, code in documents, the data of tests, and lines that give a reason are no findings."""
    assert find(path, text) == []


def test_a_deliberate_break_fails_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one banned word in a tracked file the step exits with 1 and names file, line, word and replacement."""
    (tmp_path / "page.md").write_text(f"Fine.\nIt was {WORD}.\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plain_language, "tracked_files", lambda: ["page.md"])
    assert plain_language.main() == 1
    assert f"page.md:2: “{WORD}”: write {BANNED[WORD]}" in capsys.readouterr().err
    (tmp_path / "page.md").write_text("Fine.\n", encoding="utf-8")
    assert plain_language.main() == 0
