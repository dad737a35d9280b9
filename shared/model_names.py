"""The names of models, their labels and their queues; engines read them without the libraries of settings. Pure."""

from __future__ import annotations

import re
from pathlib import Path

DEFAULT_MODEL = "minilm"
BUNDLED_MODEL_NAMES = (DEFAULT_MODEL, "all-minilm-l6-v2", "sentence-transformers/all-minilm-l6-v2")
"""The names of the bundled model, in lower case: the hub does not distinguish case either."""


def canonical_model(name: str) -> str:
    """Returns DEFAULT_MODEL for each name of the bundled model, in any case; any other name unchanged."""
    return DEFAULT_MODEL if name.lower() in BUNDLED_MODEL_NAMES else name


def public_model(name: str) -> str:
    """Returns the name of a model without the folders of a path, which are no client's business."""
    is_path = name.startswith(("/", ".", "~")) or name.count("/") > 1
    return Path(name).name if is_path else name


def queue_slug(model: str) -> str:
    """Returns the queue name of a model: the part after the last slash, in lower case, other characters as dashes.

    All simulated models have the same name, independent of their times, and so have all names of the bundled model.
    """
    name = ("simulated" if model.startswith("simulated:") else model).rstrip("/").rsplit("/", 1)[-1].lower()
    return canonical_model(re.sub(r"[^a-z0-9._-]+", "-", name)[:64].strip("-")) or "default"


def numbered_labels(number: int) -> list[str]:
    """Returns the names of labels that have none, as Transformers writes them."""
    return [f"LABEL_{index}" for index in range(number)]
