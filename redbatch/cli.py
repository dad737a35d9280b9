"""Entry point of the `redbatch` command. It imports only `redbatch.import_path` until `sys.path` is clean.

The engine's spawned processes import this module again, as the main module of their parent: it must stay this small.
"""

from __future__ import annotations

from redbatch.import_path import clean_sys_path

INTERRUPTED = 130
"""Exit code after SIGINT, as shells give it."""


def main() -> None:
    """Runs the command line. Ctrl-C while it is still imported is no error of the program."""
    clean_sys_path()
    try:
        _run()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _run() -> None:
    import os
    import sys

    from redbatch.commands import app
    from redbatch.completion import COMPLETE_VARIABLE, prepare_candidates
    from redbatch.variables import ineffective_variables
    from shared.process.settings import print_error, read_file_variables

    if COMPLETE_VARIABLE in os.environ:  # on each press of the tab key: a warning would be in the way
        prepare_candidates()
        app()
    read_file_variables(os.environ)
    command = next(iter(sys.argv[1:]), "")
    if command not in ("gateway", "worker", "completion"):  # the first two report it in their logs
        for name, advice in ineffective_variables(os.environ, command).items():
            print_error(f"warning: {name} has no effect: {advice}")
    app()
