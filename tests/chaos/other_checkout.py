"""The option --checkout: the scenes with the gateways, workers and commands of another checkout of the repository.

It is a plugin. Tests and attacks are of this checkout. A setting that the other one does not know has no effect there.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "gpuworker", "redbatch", "shared")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    what = "start all processes from another checkout, to see which scenes fail there"
    parser.addoption("--checkout", type=Path, metavar="FOLDER", help=what)


def pytest_configure(config: pytest.Config) -> None:
    """Lets child processes find the packages of the other checkout, and `tests` in this one."""
    checkout: Path | None = config.getoption("--checkout")
    if checkout is None:
        return
    if config.getoption("--document"):
        raise pytest.UsageError("--document publishes figures of this checkout: leave out --checkout")
    folder = tempfile.TemporaryDirectory()
    config.add_cleanup(folder.cleanup)
    os.environ["PYTHONPATH"] = child_path(checkout, Path(folder.name))


def child_path(checkout: Path, folder: Path) -> str:
    """Returns the PYTHONPATH of processes that have the packages of a checkout, linked in a folder, and these tests."""
    for package in PACKAGES:
        (folder / package).symlink_to((checkout / package).resolve(strict=True))
    return os.pathsep.join([str(folder), str(ROOT)])
