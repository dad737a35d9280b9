"""What to do about a model that cannot be loaded. The libraries' errors say what is wrong, and not how to mend it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import constants
from safetensors import SafetensorError, safe_open

from gpuworker.model_spec import OFFLINE

LFS_POINTER = b"version https://git-lfs"
PICKLES = "pytorch_model*.bin"
"""Names of the libraries' pickles: other files that end in .bin are none."""

IN_THE_DOCUMENTS = "see `A model with its own code` in docs/functions.md"


def advice_for(path: str, error: Exception) -> str:
    """Returns the cause and the next step in one line; empty if the cause is none of the usual ones.

    Args:
        path: the folder of the model, or its name if it comes from the hub.
        error: that a library raised.
    """
    if "trust_remote_code" in str(error):
        return f"it brings Python code, which a worker does not run; serve it as a class that does: {IN_THE_DOCUMENTS}"
    folder = Path(path)
    try:
        if folder.is_dir():
            return _advice_for_folder(folder)
    except OSError:  # a file cannot be read: the library's error has to do
        return ""
    if "cannot be loaded with `safetensors`" in str(error):
        return f"it has no safetensors, and other weights may run code; {_conversion(path)}"
    if constants.HF_HUB_OFFLINE and "in the cached files" in str(error):
        return f"it is not in HF_HOME, and HF_HUB_OFFLINE forbids downloads. {OFFLINE}"
    return ""


def _advice_for_folder(folder: Path) -> str:
    files = [each for each in folder.rglob("*") if each.is_file() and ".git" not in each.parts]
    pointer = next((each for each in files if _is_pointer(each)), None)
    if pointer is not None:
        return f"{pointer.relative_to(folder)} is a pointer of Git LFS, not the file: run `git lfs pull` in the folder"
    damaged = next((each for each in files if _is_damaged(each)), None)
    if damaged is not None:
        return f"{damaged.relative_to(folder)} is incomplete or damaged: download or copy it again"
    if not any(each.name in ("config.json", "modules.json") for each in files):
        return _advice_without_config(files)
    safe = {each.parent for each in files if each.suffix == ".safetensors"}
    pickle = next((each for each in files if each.match(PICKLES) and each.parent not in safe), None)
    if pickle is not None:
        return f"{pickle.relative_to(folder)} is a pickle, which may run code, and is not loaded; {_conversion(folder)}"
    return "" if safe else "the folder has no weights: model.safetensors is missing"


def _advice_without_config(files: Sequence[Path]) -> str:
    if any(each.name == "adapter_config.json" for each in files):
        return "it is an adapter (LoRA): merge it into its model (peft: merge_and_unload), and save the result"
    if any(each.suffix == ".gguf" for each in files):
        return "GGUF files are not served: use the folder of the model that they were made from, with safetensors"
    return (
        "a folder must hold what SentenceTransformer.save writes, or a clone from the hub: config.json, "
        "model.safetensors, tokenizer.json; this one has no config.json"
    )


def _conversion(path: str | Path) -> str:
    return f"if you trust it, SentenceTransformer('{path}').save('NEW') writes a folder with safetensors"


def _is_damaged(file: Path) -> bool:
    """Whether a download or a copy ended early."""
    try:
        if file.suffix == ".safetensors":
            with safe_open(file, framework="numpy"):
                pass
        elif file.suffix == ".json":
            json.loads(file.read_bytes())
    except (SafetensorError, ValueError):
        return True
    return False


def _is_pointer(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(LFS_POINTER)) == LFS_POINTER
