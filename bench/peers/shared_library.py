"""Python's shared library, in which Triton runs its Python backend."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path


def python_libraries() -> str:
    """Returns the folder of the library of this Python, for LD_LIBRARY_PATH. Exits if this Python was built without it.

    Triton would load the system's instead, of another version than the standard library that it runs with.
    """
    library = "libpython{}.{}.so.1.0".format(*sys.version_info)
    path = Path(sysconfig.get_config_var("LIBDIR"), library)
    if not path.exists():
        sys.exit(f"Triton needs Python's shared library: {path} does not exist (Debian: apt install {library[:13]})")
    return str(path.parent)
