"""Entry point of the `redbatch` command. It imports nothing but the guard of the imports until that has done its work.

The engine's spawned processes import this module again, as the main module of their parent: it must stay this small.
"""

from __future__ import annotations

from redbatch.import_path import keep_caller_out


def main() -> None:
    """Runs the command line."""
    keep_caller_out()
    import os

    from redbatch.commands import app
    from shared.process.settings import take_in_files

    take_in_files(os.environ)
    app()
