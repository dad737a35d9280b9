"""Records imports of tracing modules; Python runs this file at its start if the folder is on its path.

The names are appended to the file IMPORT_RECORD. If OPENTELEMETRY_MISSING is set, imports of opentelemetry fail.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

RECORDED = (
    "api.tracing",
    "gpuworker.tracing",
    "opentelemetry.exporter",
    "opentelemetry.sdk.trace",
    "shared.process.tracing.",
)


class ImportRecorder:
    """Records the names of modules that are imported for the first time."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Records a name and returns None, so that the other finders look for the module."""
        if name.startswith(RECORDED):
            with Path(os.environ["IMPORT_RECORD"]).open("a", encoding="utf-8") as file:
                file.write(f"{name}\n")
            if "OPENTELEMETRY_MISSING" in os.environ and name.startswith("opentelemetry"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, ImportRecorder())
