"""What the error of a model that cannot be loaded says to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gpuworker.backends.load_advice import advice_for
from gpuworker.backends.sentence import SentenceBackend
from gpuworker.model_spec import ModelLoadError, parse_model
from tests.unit.gpuworker.backends.options import OPTIONS
from tests.unit.gpuworker.backends.test_architectures import ARCHITECTURES, build

pytestmark = pytest.mark.model

OWN_CODE = (
    "it brings Python code, which a worker does not run; serve it as a class that does: "
    "see `A model with its own code` in docs/functions.md ("
)


def own_code(folder: Path) -> None:
    """Makes the architecture one that only the folder's own code knows."""
    config = json.loads((folder / "config.json").read_text())
    code = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own", "auto_map": code}))
    (folder / "own.py").write_text("class OwnConfig: ...\nclass OwnModel: ...\n")


def own_module(folder: Path) -> None:
    """Adds a step that only the folder's own code knows."""
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": len(modules), "name": "own", "path": "2_Own", "type": "own_module.Own"})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "own_module.py").write_text("class Own: ...\n")


def lfs_pointer(folder: Path) -> None:
    """Leaves the weights as a clone without Git LFS does."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 133466304\n"
    (folder / "model.safetensors").write_text(pointer)


def pickles(folder: Path) -> None:
    """Leaves the weights in the old format alone."""
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def no_weights(folder: Path) -> None:
    """Removes the weights."""
    (folder / "model.safetensors").unlink()


def cut_weights(folder: Path) -> None:
    """Leaves the weights as an interrupted copy does."""
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1_000])


def cut_config(folder: Path) -> None:
    """Leaves the description as an interrupted copy does."""
    file = folder / "config.json"
    file.write_bytes(file.read_bytes()[:-10])


def adapter(folder: Path) -> None:
    """Leaves what peft saves."""
    empty(folder)
    (folder / "adapter_config.json").write_text("{}")


def gguf(folder: Path) -> None:
    """Leaves weights for llama.cpp."""
    empty(folder)
    (folder / "model-q8.gguf").write_bytes(b"GGUF")


def empty(folder: Path) -> None:
    """Removes all files."""
    for each in [each for each in folder.rglob("*") if each.is_file()]:
        each.unlink()


@pytest.mark.parametrize(
    ("damage", "advice"),
    [
        (own_code, OWN_CODE),
        (own_module, OWN_CODE),
        (lfs_pointer, "model.safetensors is a pointer of Git LFS, not the file: run `git lfs pull` in the folder"),
        (pickles, "pytorch_model.bin is a pickle, which may run code, and is not loaded; if you trust it, "),
        (no_weights, "the folder has no weights: model.safetensors is missing"),
        (cut_weights, "model.safetensors is incomplete or damaged: download or copy it again"),
        (cut_config, "config.json is incomplete or damaged: download or copy it again"),
        (adapter, "it is an adapter (LoRA): merge it into its model (peft: merge_and_unload), and save the result"),
        (gguf, "GGUF files are not served: use the folder of the model that they were made from, with safetensors"),
        (empty, "a folder must hold what SentenceTransformer.save writes, or a clone from the hub: config.json, "),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_error_says_what_to_do(tmp_path: Path, damage: Callable[[Path], None], advice: str) -> None:
    """Each usual cause has its next step, before the error of the library, all in one line."""
    folder = build(ARCHITECTURES["BERT"], tmp_path)
    damage(folder)
    with pytest.raises(ModelLoadError) as caught:
        SentenceBackend(parse_model(str(folder)), OPTIONS)
    message = str(caught.value)
    assert message.startswith(f"model {folder} cannot be loaded: {advice}")
    assert "\n" not in message
    assert message.endswith(")")


@pytest.mark.parametrize("damage", [no_weights, lambda _: None], ids=["no weights", "nothing else"])
def test_a_file_that_cannot_be_read_is_an_error_of_the_model(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """It ends the worker, which would start the engine again for any other error."""
    folder = build(ARCHITECTURES["BERT"], tmp_path)
    damage(folder)
    (folder / "a-file").symlink_to("/proc/self/mem")  # opens, also for root, whom permissions do not stop
    with pytest.raises(ModelLoadError, match=f"^model {folder} ") as caught:
        SentenceBackend(parse_model(str(folder)), OPTIONS)
    assert "\n" not in str(caught.value)


def test_a_model_of_the_hub_without_safetensors_is_to_be_converted() -> None:
    """The error of the library suggests a setting that a worker does not have."""
    error = OSError("x/y does not appear to have a file named ... and thus cannot be loaded with `safetensors`.")
    assert "SentenceTransformer('x/y').save('NEW')" in advice_for("x/y", error)
    assert advice_for("x/y", OSError("x/y is not a valid model identifier")) == ""
