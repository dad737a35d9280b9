"""Writes the generated parts of the documents: `make docs`. A test checks that they are current."""

from __future__ import annotations

import ast
import io
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from api import memory_bounds
from api.app import description
from api.redis_memory_bounds import ClusterSize, redis_memory_bounds
from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.settings_view import as_markdown, setting_rows
from redbatch.size import command as size_command
from redbatch.size.estimate import Requirements
from redbatch.size.view import as_text as size_as_text
from shared.key_table import job_keys_table, keys_table
from shared.model_names import DEFAULT_MODEL
from tools import bounds
from tools.blocks import replace_block

ROOT = Path(__file__).parents[1]


def openapi() -> str:
    """Returns docs/openapi.json: the description of all routes of a gateway."""
    return orjson.dumps(description(), option=orjson.OPT_INDENT_2).decode() + "\n"


def settings_table() -> str:
    """Returns the table of all settings with their defaults: environment variables of this process do not count."""
    return as_markdown(setting_rows({"gateway": GatewaySettings, "worker": WorkerSettings}, with_values=False))


def memory_table() -> str:
    """Returns the table of what a gateway holds at most in memory, with the defaults of its settings."""
    return memory_bounds.as_markdown(GatewaySettings.model_construct())


def redis_memory_table() -> str:
    """Returns the table of what a queue has in Redis at most, with two gateways, two workers, and the Redis of k8s/."""
    manifest = (ROOT / "k8s/base/redis.yaml").read_text(encoding="utf-8")
    (megabytes,) = re.findall(r"--maxmemory, (\d+)mb", manifest)
    cluster = ClusterSize(2, 2, int(megabytes) * 2**20, WorkerSettings.model_construct().max_dead_letters)
    return memory_bounds.table_of(redis_memory_bounds(GatewaySettings.model_construct(), cluster))


def size_example() -> str:
    """Returns what the example of `redbatch size` prints to a terminal of 80 columns."""
    printed = io.StringIO()
    Console(file=printed, width=80).print(
        size_as_text(size_command.compute(Requirements(2_000, 1, 15, 384, 0.3), DEFAULT_MODEL, None))
    )
    lines = "\n".join(line.rstrip() for line in printed.getvalue().splitlines())
    return f"```text\n{lines}\n```"


def pure_modules() -> list[str]:
    """Returns the modules that the import contract `pure` names, packages with all their modules, in its order."""
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (each for each in settings["tool"]["importlinter"]["contracts"] if each["id"] == "pure")
    return [module for name in contract["source_modules"] for module in _expand(name)]


def pure_table() -> str:
    """Returns the pure modules with the first sentence of each docstring."""
    rows = [f"| `{path}` | {_summary(path)} |" for path in map(_path_of, pure_modules())]
    return "\n".join(["| module | content |", "|---|---|", *rows])


BLOCKS: Mapping[tuple[str, str], Callable[[], str]] = {
    ("docs/architecture.md", "pure"): pure_table,
    ("docs/architecture.md", "keys"): keys_table,
    ("docs/jobs.md", "job-keys"): job_keys_table,
    ("docs/performance.md", "size"): size_example,
    ("docs/settings.md", "settings"): settings_table,
    ("docs/settings.md", "memory"): memory_table,
    ("docs/settings.md", "bounds"): bounds.as_markdown,
    ("docs/settings.md", "redis-memory"): redis_memory_table,
}
"""By document and block: the function that writes it."""


def render() -> dict[Path, str]:
    """Returns each generated document as it should be."""
    documents = {ROOT / "docs" / "openapi.json": openapi()}
    for (name, block), write in BLOCKS.items():
        path = ROOT / name
        text = documents.get(path) or path.read_text(encoding="utf-8")
        documents[path] = replace_block(text, f"generated:{block}", write())
    return documents


def _expand(name: str) -> Iterator[str]:
    folder = ROOT / name.replace(".", "/")
    if folder.is_dir():
        yield from (f"{name}.{path.stem}" for path in sorted(folder.glob("*.py")) if path.stem != "__init__")
    else:
        yield name


def _path_of(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def _summary(path: str) -> str:
    """The first sentence of a module's docstring, without its full stop and without the word that names the list."""
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].removesuffix(".")


def main() -> None:
    """Writes all generated documents."""
    for path, text in render().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
