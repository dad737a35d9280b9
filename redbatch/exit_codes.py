"""Exit codes of the commands, and the error line on stderr that goes with each."""

from __future__ import annotations

from shared.process.settings import EXIT_CONFIGURATION, print_error

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_TERMINATED = 143  # 128 + SIGTERM


def report_failure(message: str) -> int:
    """Prints why the command failed; returns its exit code, 1."""
    print_error(message)
    return EXIT_FAILED


def report_misuse(message: str) -> int:
    """Prints what is wrong with the arguments; returns the exit code for misuse, 2."""
    print_error(message)
    return EXIT_CONFIGURATION
