"""The Lua files are loaded and documented, and are reached through one module only."""

from __future__ import annotations

import ast
import hashlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

import shared
from shared import scripts
from shared.job_uploads import ELEMENT_BYTES, JOB_BYTES
from shared.script_arguments import ROWS
from shared.scripts import Script

FILES = {path.name.removesuffix(".lua"): path.read_text() for path in files("shared").joinpath("lua").iterdir()}
PRELUDES = {
    "add_entry",
    "backlog",
    "cache_generations",
    "entry_fields",
    "job_end",
    "job_lanes",
    "job_results",
    "job_reservations",
    "tenant_limits",
}
"""Files that are prepended to scripts, and are no scripts themselves."""

MAX_UNNAMED = 3
"""Scripts with more arguments have a class for them."""

LUA = {name: text for name, text in FILES.items() if name not in PRELUDES}
LOADED = {value.name: value for value in vars(scripts).values() if isinstance(value, Script)}
PACKAGES = ("shared", "api", "gpuworker")


def comment_block(text: str) -> str:
    """The comment lines before the first line of code."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line)
    return "\n".join(lines)


def test_every_file_is_loaded() -> None:
    """Each Lua file is loaded as a script, and each script has a file."""
    assert set(LOADED) == set(LUA)


@pytest.mark.parametrize("name", sorted(PRELUDES))
def test_a_prelude_is_prepended_where_it_is_needed(name: str) -> None:
    """Exactly those scripts have a prelude that call one of its functions, directly or in another prelude."""
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
    """The SHA-1 is that of the text, the text ends with the file's, and the constant has the name of the file."""
    assert LOADED[name].text.decode().endswith(LUA[name])
    assert LOADED[name].sha == hashlib.sha1(LOADED[name].text, usedforsecurity=False).hexdigest()
    assert getattr(scripts, name.upper()) is LOADED[name]


def declared_rows(text: str) -> list[tuple[str, list[str]]]:
    """The rows that a header declares: the name of the row, or "", and the names of its fields."""
    rows: list[tuple[str, list[str]]] = []
    for line in comment_block(text).splitlines():
        if start := re.match(r"-- (?:ARGV\b|(?:then|and), [^(]*?)(?:: (\w+)$|, ([A-Z]\w+)\b|$)", line):
            rows.append((start[1] or start[2] or "", []))
        elif (field := re.match(r"--   (\w+)  *\S", line)) and rows:
            rows[-1][1].append(field[1])
    return [row for row in rows if row[1]]


def read_rows(code: str) -> list[list[str]]:
    """The names that a script gives to the arguments it unpacks; each unpack has one name for each argument."""
    found = []
    for names, start, end in re.findall(r"^ *local ([\w,\s]+?) = unpack\(ARGV, (\w+), ([\w +]+)\)", code, re.MULTILINE):
        fields = re.split(r",\s*", names)
        last = int(end) if start == "1" else int(end.removeprefix(f"{start} + ")) + 1
        assert len(fields) == last
        found.append(fields)
    return found


@pytest.mark.parametrize("name", sorted(LUA))
def test_a_header_describes_the_script(name: str) -> None:
    """The first line names the script; KEYS, ARGV (where the script has any) and the return value follow."""
    header, code = comment_block(LUA[name]), LUA[name].removeprefix(comment_block(LUA[name]))
    assert header.startswith(f"-- {name.replace('_', ' ').capitalize()}: ")
    assert "KEYS" in header
    assert "Returns" in header
    assert ("ARGV" in header) == ("ARGV" in code)
    assert re.findall(r"ARGV\[\d", code) == []


@pytest.mark.parametrize("name", sorted(LUA))
def test_a_script_reads_the_rows_that_its_header_declares(name: str) -> None:
    """Each row is read whole, by the names of the header in their order; a row may also be read in part."""
    declared = [fields for _, fields in declared_rows(LUA[name])]
    read = read_rows(LOADED[name].text.decode())
    assert [fields for fields in declared if fields not in read] == []
    for names in read:
        assert any(
            all(name in ("_", field) for name, field in zip(names, fields, strict=False)) and len(names) <= len(fields)
            for fields in declared
        ), names


@pytest.mark.parametrize("name", sorted(LUA))
def test_python_and_lua_name_the_same_fields(name: str) -> None:
    """Each row of a script has the fields of its class, in their order; up to three arguments need no class."""
    declared = declared_rows(LUA[name])
    expected = [(row.__name__, list(getattr(row, "_fields", ()))) for row in ROWS.get(name, ())]
    assert [row for row in declared if row[0]] == expected
    assert all(len(fields) <= MAX_UNNAMED for row, fields in declared if not row)


def test_python_and_lua_count_alike() -> None:
    """What Redis needs beside the content of a reply and a job: gateways reserve it, and scripts count it."""
    counted = re.search(r"local JOB_BYTES, REPLY_BYTES = (\d+), (\d+)", FILES["job_reservations"])
    assert counted is not None
    assert [int(each) for each in counted.groups()] == [JOB_BYTES, ELEMENT_BYTES]


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_script_has_no_globals(name: str) -> None:
    """Each name that is assigned is declared local: Redis refuses globals, but only when it reaches them."""
    code = re.sub(r"--.*", "", FILES[name])
    declared = set(re.findall(r"\w+", " ".join(re.findall(r"local(?: function)? (\w+(?:,\s*\w+)*)", code))))
    declared |= set(re.findall(r"\w+", " ".join(re.findall(r"for ([\w, ]+) (?:in|=)", code))))
    declared |= set(re.findall(r"\w+", " ".join(re.findall(r"function \w+\(([\w, ]*)\)", code))))
    assigned = re.findall(r"^\s*(\w+(?:, \w+)*) = ", code, re.MULTILINE)
    assert {name for names in assigned for name in names.split(", ")} <= declared


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_script_adds_no_negated_value(name: str) -> None:
    """The negation of zero is -0 in Lua, which Redis takes for no integer: subtract from 0."""
    code = re.sub(r"--.*", "", FILES[name])
    assert re.findall(r"'H?INCRBY'[^\n]*, -(?!\d+\))", code) == []


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
    """The top-level packages that each module of the three packages imports, by its path."""
    root = Path(shared.__file__).parent.parent
    return {
        str(path.relative_to(root)): imported(path)
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }


def test_nothing_is_pickled() -> None:
    """No module imports a serializer that executes code in its input."""
    forbidden = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    assert [path for path, names in modules().items() if names & forbidden] == []
