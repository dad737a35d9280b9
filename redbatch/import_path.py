"""Keeps code of the caller's folder out of the imports.

Redbatch's packages have plain names (`api`, `shared`). `python -m` and a relative PYTHONPATH put the folder somebody
stands in before the installed packages, so their own `api/` would be imported in place of ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parent.parent


def without_caller(entries: Sequence[str], folder: Path, root: Path = PACKAGE_ROOT) -> list[str]:
    """Returns the entries of an import path that do not depend on the caller's folder.

    The root of Redbatch itself stays, as an absolute path: a checkout that nobody installed still runs.
    """
    kept: list[str] = []
    for entry in entries:
        resolved = (folder / entry).resolve()
        if resolved == root:
            kept.append(str(root))
        elif Path(entry).is_absolute() and resolved != folder.resolve():
            kept.append(entry)
    return kept


def keep_caller_out(environ: Mapping[str, str] = os.environ) -> None:
    """Takes the caller's folder out of this process' `sys.path`. Call it before the first import of api or shared."""
    folder = Path.cwd()
    # The interpreter has made relative entries absolute by now; PYTHONPATH tells which they were.
    listed = environ.get("PYTHONPATH", "").split(os.pathsep)
    relative = {(folder / entry).resolve() for entry in listed if not Path(entry).is_absolute()} - {PACKAGE_ROOT}
    sys.path[:] = [entry for entry in without_caller(sys.path, folder) if Path(entry).resolve() not in relative]


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which a Python child, and its own children, import nothing from the caller's folder."""
    result = dict(environ, PYTHONSAFEPATH="1")
    kept = without_caller(result.pop("PYTHONPATH", "").split(os.pathsep), Path.cwd())
    # An installed package is found anyway, and its folder must not come before the standard library.
    if PACKAGE_ROOT.name not in {"site-packages", "dist-packages"} and str(PACKAGE_ROOT) not in kept:
        kept.append(str(PACKAGE_ROOT))
    if kept:
        result["PYTHONPATH"] = os.pathsep.join(kept)
    return result
