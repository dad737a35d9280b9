"""Run by every Python whose path this folder is on: writes down which modules it looks for, of those that make traces.

Where WATCH_MISSING is set, they are not there either.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

WATCHED = (
    "api.tracing",
    "gpuworker.tracing",
    "opentelemetry.exporter",
    "opentelemetry.sdk.trace",
    "shared.process.tracing.",
)


class Watch:
    """Looks on as modules are looked for."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds nothing itself."""
        if name.startswith(WATCHED):
            with Path(os.environ["WATCH_INTO"]).open("a", encoding="utf-8") as file:
                file.write(f"{name}\n")
            if "WATCH_MISSING" in os.environ and name.startswith("opentelemetry"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, Watch())
