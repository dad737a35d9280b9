"""The folder with the data of the engines, which is kept for the next run.

Images and layers are there: a later run builds only what has changed. `redbatch` never uses it; delete it at any time.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "REDBATCH_TEST_ENGINE_DIR"
DEFAULT = Path("/var/tmp/redbatch-engine")  # noqa: S108 - its name is fixed so that the next run finds it


def workspace() -> Path:
    """Returns the folder, which exists. Its path is short, because engines have their sockets below it."""
    folder = Path(os.environ.get(VARIABLE) or DEFAULT)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
