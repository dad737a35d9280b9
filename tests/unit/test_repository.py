"""Rules for the repository as a whole: sizes, generated documents, maps of packages."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import documents

ROOT = Path(__file__).parents[2]
PRODUCT = ("api", "gpuworker", "shared", "redbatch")
PACKAGES = (*PRODUCT, "bench", "tests", "tools")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MAX_LINES = {"tests": 500}
MAX_FUNCTION_LINES = 40


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_are_small(path: Path) -> None:
    """A module has at most 350 lines, one of the tests 500; a function has at most 40."""
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_LINES.get(path.relative_to(ROOT).parts[0], 350)
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {node.name for node in functions if (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES}
    assert long == set()


@pytest.mark.parametrize("path", documents.render(), ids=lambda path: path.name)
def test_generated_documents_are_current(path: Path) -> None:
    """The tables of keys, settings and pure modules, and the OpenAPI description, are those that `make docs` writes."""
    assert path.read_text(encoding="utf-8") == documents.render()[path]


@pytest.mark.parametrize(
    ("command", "document"),
    [(["openapi"], "openapi.json"), (["settings", "--markdown"], "settings.md")],
    ids=["openapi", "settings"],
)
def test_commands_print_the_documents(command: list[str], document: str) -> None:
    """`redbatch openapi` and `redbatch settings --markdown` print what the documents contain."""
    printed = subprocess.run(
        [sys.executable, "-P", "-m", "redbatch", *command], check=True, capture_output=True, text=True, env={"PATH": ""}
    ).stdout
    assert len(printed.splitlines()) > 1
    assert printed.strip() in (ROOT / "docs" / document).read_text(encoding="utf-8")


def test_pure_modules_are_in_the_import_contract() -> None:
    """The modules of the product whose docstring says Pure are those of the import contract `pure`."""
    product = (path for path in MODULES if path.relative_to(ROOT).parts[0] in PRODUCT and path.stem != "__init__")
    says_pure = {
        str(path.relative_to(ROOT)).removesuffix(".py").replace("/", ".")
        for path in product
        if re.search(r"\bPure\b", ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
    }
    assert says_pure == set(documents.pure_modules())


@pytest.mark.parametrize("package", PRODUCT)
def test_the_map_of_a_package_lists_its_modules(package: str) -> None:
    """Each `__init__.py` has a line `- name: ...` for each module and package beside it, and no stale line."""
    for init in (ROOT / package).rglob("__init__.py"):
        modules = {path.stem for path in init.parent.glob("*.py")} - {"__init__", "__main__"}
        packages = {path.parent.name for path in init.parent.glob("*/__init__.py")}
        docstring = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        listed = set(re.findall(r"^- `?(\w+)`?: ", docstring, re.MULTILINE))
        assert modules | packages <= listed, init
        assert all((init.parent / name).is_dir() or name in modules | {"__main__"} for name in listed), init


@pytest.mark.parametrize("path", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]), ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    """Each relative link of a document names a file of the repository and, after a #, a heading of it."""
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)", path.read_text(encoding="utf-8")):
        linked = (path.parent / target) if target else path
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}, anchor


@pytest.mark.parametrize(
    "path", sorted({*ROOT.glob("docs/*.md")} - {ROOT / "docs" / "index.md"}), ids=lambda path: path.name
)
def test_each_page_begins_with_what_its_reader_can_do_after_it(path: Path) -> None:
    """In its first paragraph, as docs/index.md promises."""
    assert re.search(r"\A# .*\n\nAfter this page", path.read_text(encoding="utf-8"))


def test_the_page_of_the_architecture_names_every_script() -> None:
    """The table of operations names each script that a process calls, and no other."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("### The operations") : page.index("**Attempts** are")]
    named = {
        name.replace(" ", "_")
        for cell in re.findall(r"^\| (\*\*.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"\*\*(.+?)\*\*", cell)
    }
    called = set(re.findall(r'Script\.load\(\s*"(\w+)"', (ROOT / "shared" / "scripts.py").read_text(encoding="utf-8")))
    assert called <= named
    assert named - called <= {"collect", "job_end"}, "collect is no script, and job_end is part of others"


def test_each_bullet_of_the_readme_has_a_figure() -> None:
    """The README has at most 120 lines, and what it says of Redbatch alone it says with a number."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count("\n") <= 120
    bullets = re.findall(r"^- \*\*(.+?)(?=\n- |\n\n)", readme, re.MULTILINE | re.DOTALL)
    assert len(bullets) == 5
    status = r"\b[2-5]\d\d\b(?= (and|with))"
    assert [each for each in bullets if not re.search(r"\d", re.sub(status, "", each))] == []


def test_the_readme_has_the_figure_of_the_last_chaos() -> None:
    """`make chaos` writes the table of faults; the README quotes the calls of its first row."""
    faults = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    [calls] = re.findall(r"^\| F1 busy worker killed \| (\d+) \| 0 \|.*\bkills 100\b", faults, re.MULTILINE)
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"{int(calls):,} calls during 100 kills" in readme
