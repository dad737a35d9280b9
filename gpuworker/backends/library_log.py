"""The log of the transformers library, which writes to stderr, as records of the engine."""

from __future__ import annotations

import logging
import re

import structlog
from transformers.utils import logging as transformers_logging

log = structlog.get_logger()

LOADS = "the library of the model reports"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_RULE = re.compile(r"[-+|\s]*")
_SERIOUS = ("MISSING", "MISMATCH")
"""In the report of a load: weights that the files lack, or that do not fit. They are random then."""


class LibraryHandler(logging.Handler):
    """Logs a record of the library in one line.

    Its warnings become `info`, unless weights are random: they are about properties of the files that harm nothing, as
    weights for other tasks, or about ways to run that the backend tries and does without.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Logs one record."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = "a record whose arguments do not fit its format"
        text = _STYLE.sub("", message)
        lines = [line.strip(" \t|") for line in text.splitlines() if not _RULE.fullmatch(line)]
        is_harmless = record.levelno == logging.WARNING and not any(word in text for word in _SERIOUS)
        level = logging.INFO if is_harmless else record.levelno
        log.log(level, LOADS, reason="; ".join(" ".join(line.split()) for line in lines))


_handler = LibraryHandler()


def log_library_records() -> None:
    """Has the library log in this way, without its bars of progress. A further call changes nothing."""
    transformers_logging.disable_progress_bar()
    transformers_logging.disable_default_handler()
    transformers_logging.add_handler(_handler)
