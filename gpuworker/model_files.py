"""Reads the files that describe a model: see gpuworker.model_type."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuworker.model_type import HEADS, ModelFiles

Find = Callable[[str], Path | None]
"""Returns the file of a model at a path within it; None if it has no such file."""

MAX_FILE_BYTES = 64 * 2**20
"""A larger one describes no model."""

HEAD_SUFFIXES = (".safetensors", ".pt")
"""Of the file with the weights of one layer: what safetensors, or torch.save, wrote. The first that exists counts."""


def find_in(folder: Path) -> Find:
    """Returns how to find the files of a model in a folder."""

    def find(name: str) -> Path | None:
        path = folder / name
        return path if path.is_file() else None

    return find


def read_files(find: Find) -> ModelFiles:
    """Returns the files of a model, parsed. What cannot be read or parsed is empty: to load the model says why."""
    modules = _read_json(find("modules.json"))
    steps = [each for each in modules if isinstance(each, dict)] if isinstance(modules, list) else []
    kinds = ((str(each.get("type", "")), str(each.get("path", ""))) for each in steps)
    place = next((path for kind, path in kinds if kind.endswith(".Transformer")), "")
    prefix = f"{place.strip('/')}/" if place else ""
    return ModelFiles(
        _read_object(find(f"{prefix}config.json")),
        steps,
        _read_object(find("config_sentence_transformers.json")),
        _read_templates(find, prefix),
        [name for name in HEADS if find_head(find, name) is not None],
    )


def find_head(find: Find, name: str) -> Path | None:
    """Returns the file with the weights of a layer beside the transformer; None if the model has none."""
    paths = (find(f"{name}{suffix}") for suffix in HEAD_SUFFIXES)
    return next((path for path in paths if path is not None), None)


def _read_templates(find: Find, prefix: str) -> list[str]:
    saved = _read_object(find(f"{prefix}tokenizer_config.json")).get("chat_template")
    named = saved if isinstance(saved, list) else [{"template": saved}]
    texts = [each["template"] for each in named if isinstance(each, dict) and isinstance(each.get("template"), str)]
    path = find(f"{prefix}chat_template.jinja")
    if path is not None and path.stat().st_size <= MAX_FILE_BYTES:
        texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return texts


def _read_object(path: Path | None) -> dict[str, Any]:
    value = _read_json(path)
    return value if isinstance(value, dict) else {}


def _read_json(path: Path | None) -> object:
    try:
        if path is None or path.stat().st_size > MAX_FILE_BYTES:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
