"""Keeps the caller's current folder out of the import path.

Redbatch's packages have plain names (`api`, `shared`). `python -m` and a relative PYTHONPATH put the current folder
before the installed packages, so an `api/` of the caller would be imported in place of Redbatch's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parent.parent


def exclude_caller_folder(entries: Sequence[str], folder: Path, root: Path = PACKAGE_ROOT) -> list[str]:
    """Returns the entries of an import path that do not depend on the current folder.

    The root of Redbatch itself stays, as an absolute path, so that a checkout runs without installation.
    """
    result: list[str] = []
    for entry in entries:
        resolved = (folder / entry).resolve()
        if resolved == root:
            result.append(str(root))
        elif Path(entry).is_absolute() and resolved != folder.resolve():
            result.append(entry)
    return result


def clean_sys_path(environ: Mapping[str, str] = os.environ) -> None:
    """Removes the current folder from this process' `sys.path`. Call it before the first import of api or shared."""
    folder = Path.cwd()
    # The interpreter has already made relative entries absolute; PYTHONPATH still shows which ones they were.
    entries = environ.get("PYTHONPATH", "").split(os.pathsep)
    relative = {(folder / entry).resolve() for entry in entries if not Path(entry).is_absolute()} - {PACKAGE_ROOT}
    sys.path[:] = [entry for entry in exclude_caller_folder(sys.path, folder) if Path(entry).resolve() not in relative]


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which a Python child, and its children, import nothing from the current folder."""
    result = dict(environ, PYTHONSAFEPATH="1")
    entries = exclude_caller_folder(result.pop("PYTHONPATH", "").split(os.pathsep), Path.cwd())
    # An installed package is found in any case, and its folder must not precede the standard library.
    if PACKAGE_ROOT.name not in {"site-packages", "dist-packages"} and str(PACKAGE_ROOT) not in entries:
        entries.append(str(PACKAGE_ROOT))
    if entries:
        result["PYTHONPATH"] = os.pathsep.join(entries)
    return result
