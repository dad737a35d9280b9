"""Entry point of the `redbatch` command. It imports only `redbatch.import_path` until `sys.path` is clean.

The engine's spawned processes import this module again, as the main module of their parent: it must stay this small.
"""

from __future__ import annotations

from redbatch.import_path import clean_sys_path


def main() -> None:
    """Runs the command line."""
    clean_sys_path()
    import os

    from redbatch.commands import app
    from shared.process.settings import read_file_variables

    read_file_variables(os.environ)
    app()
