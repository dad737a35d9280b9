"""Imports what the processes of Redbatch import, so that Python writes the bytecode of these modules and no others.

A container cannot write bytecode. Modules without it are compiled at each start of a process, which takes seconds for
torch and transformers.
"""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import suppress

OURS = ("shared", "api", "gpuworker", "redbatch")
MODELS = ("sentence_transformers", "transformers.models.auto.modeling_auto", "transformers.models.bert.modeling_bert")
"""Imported as a model loads; other architectures than that of the bundled model are compiled when they are used."""


def main() -> None:
    """Imports all modules; those that need packages of the other image are left out."""
    for package in OURS:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                with suppress(ImportError):
                    importlib.import_module(module.name)
    for name in MODELS:
        with suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    main()
