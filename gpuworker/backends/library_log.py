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

_OUR_ATTEMPT = "does not support setting its attention implementation dynamically"
"""What the library says when the backend tries to pack texts with each model, and does without."""

_WEIGHTS_OF = re.compile(r"(\w+) LOAD REPORT from")
_WEIGHT = re.compile(r"^\s*(\S+)\s*\|\s*([A-Z]+)\b", re.MULTILINE)
_STATUS_WORDS = {
    "UNEXPECTED": "it has no use for",
    "MISSING": "the files lack these, which are random:",
    "MISMATCH": "the files have another shape of these, which are random:",
}
MAX_WEIGHTS = 8
"""Weights of a status that a line names; their names stand for all layers already."""


class LibraryHandler(logging.Handler):
    """Logs a record of the library in one line.

    Its warnings become `info`, unless weights are random: they are about properties of the files that harm nothing, as
    weights for other tasks. What it says about ways to run that the backend tries is for debugging.
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
        reason = _describe_weights(text) or "; ".join(" ".join(line.split()) for line in lines)
        log.log(logging.DEBUG if _OUR_ATTEMPT in text else level, LOADS, reason=reason)


def _describe_weights(text: str) -> str:
    """Returns the report of a load, which is a table, as a sentence; empty for any other text."""
    model, weights = _WEIGHTS_OF.search(text), _WEIGHT.findall(text)
    if model is None:
        return ""
    parts = []
    for status, words in _STATUS_WORDS.items():
        names = sorted(name for name, found in weights if found == status)
        more = f" and {len(names) - MAX_WEIGHTS} more" if len(names) > MAX_WEIGHTS else ""
        parts += [f"{words} {', '.join(names[:MAX_WEIGHTS])}{more}"] if names else []
    return f"weights of {model[1]}: {'; '.join(parts)}" if parts else ""


_handler = LibraryHandler()


def log_library_records() -> None:
    """Has the library log in this way, without its bars of progress. A further call changes nothing."""
    transformers_logging.disable_progress_bar()
    transformers_logging.disable_default_handler()
    transformers_logging.add_handler(_handler)
