"""Models of strangers: their files bring weights, and never code that runs here."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from sentence_transformers.sentence_transformer.modules import Dense

from gpuworker.backends.sentence import SentenceBackend
from gpuworker.model_spec import ModelLoadError, parse_model
from tests.unit.gpuworker.backends.options import OPTIONS
from tests.unit.gpuworker.backends.test_architectures import ARCHITECTURES, DIM, build

pytestmark = pytest.mark.model


class _Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return _touch, (str(self._path),)


def _touch(path: str) -> object:
    Path(path).touch()
    return {}


def _code_that_touches(path: Path, class_name: str, base: str) -> str:
    return f"import pathlib\npathlib.Path({str(path)!r}).touch()\n{base}\n\nclass {class_name}(Base):\n    pass\n"


def _pickled_transformer(folder: Path, ran: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Touch(ran)))


def _pickled_dense(folder: Path, ran: Path) -> None:
    dense = folder / "2_Dense"
    dense.mkdir()
    options = {"in_features": 32, "out_features": 8, "bias": True, "activation_function": "torch.nn.Tanh"}
    (dense / "config.json").write_text(json.dumps(options))
    (dense / "pytorch_model.bin").write_bytes(pickle.dumps(_Touch(ran)))
    _add_module(folder, "2_Dense", "sentence_transformers.models.Dense")


def _transformer_code(folder: Path, ran: Path) -> None:
    base = "from transformers import BertModel as Base"
    (folder / "modeling_own.py").write_text(_code_that_touches(ran, "OwnModel", base))
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "modeling_own.OwnModel"}
    (folder / "config.json").write_text(json.dumps(config))


def _module_code(folder: Path, ran: Path) -> None:
    base = "from sentence_transformers.models import Normalize as Base"
    (folder / "own_module.py").write_text(_code_that_touches(ran, "Own", base))
    _add_module(folder, "2_Own", "own_module.Own")


def _activation_code(folder: Path, ran: Path) -> None:
    dense = folder / "2_Dense"
    dense.mkdir()
    Dense(DIM, 8).save(str(dense))
    _add_module(folder, "2_Dense", "sentence_transformers.models.Dense")
    config = json.loads((folder / "2_Dense" / "config.json").read_text())
    (folder / "own_activation.py").write_text(_code_that_touches(ran, "Own", "from torch.nn import Tanh as Base"))
    (folder / "2_Dense" / "config.json").write_text(json.dumps(config | {"activation_function": "own_activation.Own"}))


def _add_module(folder: Path, path: str, kind: str) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": len(modules), "name": str(len(modules)), "path": path, "type": kind})
    (folder / "modules.json").write_text(json.dumps(modules))


REFUSED, REPLACED = [_pickled_transformer, _pickled_dense, _module_code], [_transformer_code, _activation_code]


@pytest.mark.parametrize("attack", [*REFUSED, *REPLACED], ids=lambda each: each.__name__.strip("_"))
def test_files_of_a_model_run_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: Callable[[Path, Path], None]
) -> None:
    """A model that brings pickles, or classes, is refused, and these do not run, even where Python could import them.

    The libraries replace a class of a known architecture by their own, and an unknown activation by their default.
    """
    folder, ran = build(ARCHITECTURES["BERT"], tmp_path), tmp_path / "ran"
    monkeypatch.syspath_prepend(folder)
    SentenceBackend(parse_model(str(folder)), OPTIONS)
    attack(folder, ran)
    with pytest.raises(ModelLoadError) if attack in REFUSED else nullcontext():
        SentenceBackend(parse_model(str(folder)), OPTIONS)
    assert not ran.exists()


def test_a_pickle_that_is_loaded_would_be_seen(tmp_path: Path) -> None:
    """The check can fail: what the attacks write runs where pickles are loaded."""
    pickle.loads(pickle.dumps(_Touch(tmp_path / "ran")))  # noqa: S301 - the attack
    assert (tmp_path / "ran").exists()
