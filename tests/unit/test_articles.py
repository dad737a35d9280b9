"""The page for readers of articles names only settings, routes, commands and metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from api.app import description
from redbatch.commands import app
from redbatch.variables import FOREIGN_NAMES, OTHER_VARIABLES, SETTINGS
from shared.process.settings import flag_of, variable_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "from-the-articles.md").read_text(encoding="utf-8")
ADMIN_ROUTES = {"GET /health", "GET /livez", "GET /readyz", "GET /metrics"}


def here(pattern: str) -> set[str]:
    """Returns the matches in code spans of the page, without the first column of each table, which is the article's."""
    text = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    rows = [line.split(" | ", 1)[-1] if line.startswith("| ") else line for line in text.splitlines()]
    return {match for span in re.findall(r"`([^`]+)`", "\n".join(rows)) for match in re.findall(pattern, span)}


def command_flags() -> set[str]:
    """Returns all flags of all commands."""
    group = typer.main.get_command(app)
    commands = [group.commands[name] for name in sorted(group.commands)]  # type: ignore[attr-defined]
    return {flag for each in commands for parameter in each.params for flag in parameter.opts}


def test_the_tables_have_a_row_for_each_system() -> None:
    """Five systems, each with a table and a paragraph on what its article leaves open."""
    assert len(re.findall(r"^## [1-5]\. ", PAGE, re.MULTILINE)) == 5
    assert PAGE.count("| there | here |") == 5
    assert PAGE.count("**What the article leaves open.**") == 5


def test_each_flag_and_variable_is_a_setting() -> None:
    """A reader can type what the page names."""
    fields = {name for each in SETTINGS for name in each.model_fields}
    flags = here(r"(?<![\w-])--[a-z][a-z0-9-]*")
    variables = here(r"REDBATCH_[A-Z_]+")
    assert len(flags) > 20
    assert flags - set(map(flag_of, fields)) - command_flags() == set()
    assert variables <= set(map(variable_of, fields)) | OTHER_VARIABLES


def test_each_route_exists() -> None:
    """Method and path are those of the OpenAPI description, or of the admin port."""
    paths = description()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods} | ADMIN_ROUTES
    named = here(r"(?:GET|POST|DELETE) /[\w/{}]*")
    assert len(named) > 6
    assert named - routes == set()


def test_each_metric_and_command_exists() -> None:
    """Metrics are those of gateway and worker; commands are those of the command line."""
    metrics = "".join((ROOT / name / "metrics.py").read_text(encoding="utf-8") for name in ("api", "gpuworker"))
    for name in here(r"\bredbatch_[a-z_]+"):
        assert f'"{name}"' in metrics, name
    group = typer.main.get_command(app)
    assert here(r"^redbatch [a-z]+") - {f"redbatch {name}" for name in group.commands} == set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [each.name for each in FOREIGN_NAMES if each.is_distinct and each.name != "REDIS_URL"])
def test_each_name_that_is_warned_of_is_explained(name: str) -> None:
    """The warning of `redbatch` and the page agree on what the names of other systems are."""
    assert f"`{name}" in PAGE


def test_the_ceilings_are_those_of_the_formula() -> None:
    """N items take 5 + 3 (n - 1) ms."""
    rows = re.findall(r"^\| (\d+), \d+ ms \| (\d+) ms \| (\d+)/s \| ([\d,]+)/s \|$", PAGE, re.MULTILINE)
    assert [int(size) for size, *_ in rows] == [8, 16, 32]
    for size, batch_ms, ceiling, printed in rows:
        assert int(batch_ms) == 5 + 3 * (int(size) - 1)
        assert int(ceiling) == int(1000 * int(size) / int(batch_ms))
        assert int(printed.replace(",", "")) > 2 * int(ceiling)
