"""Runs a command that the kernel ends when its parent dies, even by kill -9.

Used as a script: `python -I -S parent_death.py SIGNAL PARENT COMMAND...`. A small program that becomes the command is
safe to start from a process with threads; `preexec_fn` is not. Without prctl it only runs the command.

The kernel watches the *thread* that started the child, so start it from one that lives as long as the process.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def wrap_command(command: list[str], ending: signal.Signals) -> list[str]:
    """Returns the command line that runs `command` as a child of this process and ends it with the given signal."""
    return [sys.executable, "-I", "-S", __file__, str(int(ending)), str(os.getpid()), *command]


def die_with_parent(ending: signal.Signals) -> None:
    """Has the kernel send this process a signal when its parent dies. Does nothing where prctl is missing."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, int(ending), 0, 0, 0)


def main(arguments: list[str]) -> None:
    """Becomes the command, or exits if the parent is gone already."""
    ending, parent, *command = arguments
    die_with_parent(signal.Signals(int(ending)))
    if os.getppid() != int(parent):  # the parent died before the line above
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 - a shell is not wanted


if __name__ == "__main__":
    main(sys.argv[1:])
