"""A user's class as a model: its arguments, its GPU, and its outputs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from gpuworker.backends.base import OneInputError
from gpuworker.backends.function import FunctionBackend
from gpuworker.engine.failures import model_failure
from gpuworker.model_spec import ModelLoadError, parse_model
from tests.unit.gpuworker.backends.options import OPTIONS

if TYPE_CHECKING:
    from gpuworker.backends.base import Outputs

SOURCE = """
import sys
import numpy, torch

class Model:
    def __init__(self, factor=1):
        self.factor, self.warm = factor, False

    def warmup(self):
        self.warm = True

    def preprocess_input(self, value):
        return value * self.factor

    def transform(self, values):
        return values

    def postprocess_output(self, result):
        kinds = {"numpy": numpy.arange(3, dtype="float32"), "torch": torch.ones(2, 2), "scalar": numpy.float64(0.5)}
        kinds["warm" * self.factor] = self.warm
        return kinds.get(str(result), result)

class Other(Model):
    pass

class Exiting(Model):
    def preprocess_input(self, value):
        sys.exit(value)

class Retrying(Model):
    def __init__(self):
        self.retry_on = TimeoutError

class Priced(Model):
    def cost(self, value):
        return {"none": None, "nan": float("nan"), "inf": float("inf")}.get(str(value), value)

class _Hidden:
    pass

def factory():
    return Model()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder of the user, with a module in it."""
    (tmp_path / "ownmodel.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("ownmodel", None)


def load(name: str = "ownmodel:Model", model_args: str = "") -> FunctionBackend:
    """Loads a class."""
    return FunctionBackend(parse_model(name), replace(OPTIONS, model=name, model_args=model_args))


def outputs(backend: FunctionBackend, *inputs: str) -> Outputs:
    """Returns the outputs for some inputs, which are JSON."""
    return backend.run(backend.collate(backend.tokenize(inputs)), exclusive=True)


@pytest.mark.usefixtures("folder")
def test_a_class_gets_its_arguments_and_its_methods_are_called() -> None:
    """It is constructed with its arguments and warmed up; its outputs are JSON in the order of the inputs."""
    backend = load(model_args='{"factor": 3}')
    backend.warmup()
    assert outputs(backend, '"warm"') == [b"true"]
    assert outputs(backend, "2", '"ab"', "[null]") == [b"6", b'"ababab"', b"[null,null,null]"]


@pytest.mark.usefixtures("folder")
def test_a_tokenizer_of_a_class_has_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would compete with the class's own, and none survives a fork."""
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    load()
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("kind", "output"), [("numpy", b"[0.0,1.0,2.0]"), ("torch", b"[[1.0,1.0],[1.0,1.0]]"), ("scalar", b"0.5")]
)
def test_arrays_become_lists(kind: str, output: bytes) -> None:
    """That holds for arrays of numpy and of torch."""
    assert outputs(load(), f'"{kind}"') == [output]


def test_the_revision_depends_on_source_and_arguments(folder: Path) -> None:
    """It is the same for the same class, and differs for other arguments, another class, or a changed source."""
    first = load().revision
    assert load().revision == first
    assert len({first, load(model_args='{"factor": 2}').revision, load("ownmodel:Other").revision}) == 3
    (folder / "ownmodel.py").write_text(SOURCE + "\n")
    assert load().revision != first


def test_the_current_folder_hides_no_library(folder: Path) -> None:
    """A user's file with the name of a library is not imported in its place."""
    (folder / "tabnanny.py").write_text("raise RuntimeError('not this one')")
    (folder / "ownmodel.py").write_text("import tabnanny\n" + SOURCE)
    assert "tabnanny" not in sys.modules
    assert outputs(load(), "1") == [b"1"]
    del sys.modules["tabnanny"]


@pytest.mark.parametrize(
    ("file", "source", "name", "place"),
    [
        ("netrc.py", "class Model: ...", "netrc:Model", "netrc.py"),
        ("math.py", "class Model: ...", "math:Model", ""),
        ("netrc.py", "mine = 1", "ownmodel:Model", "netrc.py"),
        ("shared/__init__.py", "", "ownmodel:Model", "shared/__init__.py"),
    ],
)
def test_a_file_that_a_library_hides_is_named(folder: Path, file: str, source: str, name: str, place: str) -> None:
    """The error says which module was imported in its place, whether it was to have the class or something else."""
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(source)
    wanted = {"netrc.py": "from netrc import mine", "shared/__init__.py": "import shared.mine"}
    (folder / "ownmodel.py").write_text(wanted.get(file, "") + "\n" + SOURCE)
    with pytest.raises(ModelLoadError, match=rf"another module named .*{place}.* comes before {file} here") as error:
        load(name)
    assert str(error.value).endswith(": give yours another name")


@pytest.mark.parametrize(
    ("device", "variable", "visible"),
    [
        ("cuda:0,cuda:1", "", "0,1"),
        ("cuda:0,cuda:2", "4,6,7", "4,7"),
        ("cpu", "3", "3"),
        ("cuda:1", "", "1"),
        ("cuda:1", "4,6", "6"),
        ("cuda:0", "GPU-a, GPU-b", "GPU-a"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_class_sees_only_the_gpu_of_its_engine(
    device: str, variable: str, visible: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable that all libraries use names it, or all that it spans, so that no two engines meet on one GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    backend = FunctionBackend(parse_model("ownmodel:Model"), replace(OPTIONS, device=device))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible
    assert backend.device == device


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["ownmodel:model", "ownmodel.deeper:Model", "nomodel:Model"])
def test_a_missing_class_or_module_is_named(name: str) -> None:
    """The error has no line break."""
    with pytest.raises(ModelLoadError, match=name) as error:
        load(name)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("folder")
def test_a_missing_class_has_an_error_with_those_that_are_there(folder: Path) -> None:
    """Not the ones that the module imports; and not where a library lacks something that the module takes from it."""
    with pytest.raises(ModelLoadError, match=r"attribute .Modle.: it has Model, Other, Exiting, Retrying or Priced$"):
        load("ownmodel:Modle")
    (folder / "outdated.py").write_text("import pathlib\nclass Model: ...\npathlib.Pth\n")
    with pytest.raises(ModelLoadError, match=r"module .pathlib. has no attribute .Pth.$"):
        load("outdated:Model")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "message"), [("Retrying", "has a retry_on that is no tuple"), ("factory", "is not a class")]
)
def test_an_object_that_is_no_function_is_an_error_in_words(name: str, message: str) -> None:
    """Whether the class or its constructor is at fault."""
    with pytest.raises(ModelLoadError, match=f"model ownmodel:{name} {message}"):
        load(f"ownmodel:{name}")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("value", ["0", "-1", "2147483649", '"none"', "[1]", '"nan"', '"inf"'])
def test_an_invalid_cost_is_an_error_that_names_the_method(value: str) -> None:
    """Clients get its message, as that of an invalid output."""
    with pytest.raises(OneInputError) as raised:
        load("ownmodel:Priced").tokenize([value])
    assert model_failure(raised.value.cause).message == (
        "The model failed on this input: its method cost returned no number above 0, and at most 2147483648."
    )


def test_a_misspelled_method_is_a_warning(folder: Path) -> None:
    """With the name that the class lacks; the class is served."""
    (folder / "typo.py").write_text(
        "class Model:\n    def transform(self, x): return x\n    def preproces(self, x): ...\n"
    )
    with capture_logs() as logs:
        load("typo:Model")
    assert [(each["log_level"], each["method"], each["known"]) for each in logs] == [
        ("warning", "preproces", "preprocess")
    ]


@pytest.mark.usefixtures("folder")
def test_an_exit_in_preprocess_input_is_an_error_of_its_input() -> None:
    """The engine process goes on."""
    with pytest.raises(OneInputError) as raised:
        load("ownmodel:Exiting").tokenize(["7"])
    assert (type(raised.value.cause), raised.value.index) == (SystemExit, 0)
