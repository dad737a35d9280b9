"""Runtimes other than torch: where their graph comes from, and the errors."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from gpuworker.backends import onnx_transformer
from gpuworker.backends.onnx_transformer import FILE, SHIPPED, ensure_graph
from gpuworker.backends.runtimes import Cores
from gpuworker.backends.selection import load_backend
from gpuworker.model_spec import ModelLoadError, parse_model
from tests.unit.gpuworker.backends.options import OPTIONS

pytestmark = pytest.mark.model

MINILM = parse_model("minilm")
NAMES = ["input_ids", "attention_mask"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache for the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "redbatch" / "onnx"


def replace_export(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[Path]:
    """Replaces the exporter, which takes seconds, by one that records the files it writes, or fails."""
    exported: list[Path] = []

    def export(*args: object) -> None:
        path = args[-1]
        assert isinstance(path, Path)
        if error is not None:
            path.write_bytes(b"half")
            raise error
        path.write_bytes(b"graph")
        exported.append(path)

    monkeypatch.setattr(onnx_transformer, "_export", export)
    return exported


def test_a_graph_in_the_model_folder_is_used(tmp_path: Path, home: Path) -> None:
    """Most models on the hub have one there. None is exported or cached."""
    shipped = tmp_path / "model" / SHIPPED
    shipped.parent.mkdir(parents=True)
    shipped.touch()
    assert ensure_graph(torch.nn.Identity(), NAMES, str(tmp_path / "model"), "") == shipped
    assert not home.exists()


def test_a_graph_is_exported_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That holds even if several engines of a host need it at the same time; another model has another graph."""
    exported = replace_export(monkeypatch)

    def path_of(commit: str) -> Path:
        return ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, commit)

    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(path_of, ["one"] * 8))
    assert len(exported) == 1
    assert [path.read_bytes() for path in paths] == [b"graph"]
    assert path_of("two") not in paths
    assert sorted(each.suffix for each in home.iterdir()) == ["", "", ".lock", ".lock"]


def test_a_cached_graph_is_used_from_a_read_only_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder may be in an image, or shared by several hosts: no lock is taken."""
    replace_export(monkeypatch)
    exported = ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, "")
    exported.parent.with_suffix(".lock").unlink()
    monkeypatch.setattr(fcntl, "flock", lambda *_: pytest.fail("no lock may be taken"))
    assert ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, "") == exported


def test_a_failed_export_leaves_no_graph(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start exports it again."""
    replace_export(monkeypatch, ValueError("no such operator"))
    with pytest.raises(
        ModelLoadError, match=r"cannot be exported as an ONNX graph \(no such operator\): use --backend torch"
    ):
        ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, "")
    assert [each.suffix for each in home.iterdir()] == [".lock"]


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable that sets another folder."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        ModelLoadError, match=r"cannot be cached in .*file/redbatch/onnx \(XDG_CACHE_HOME\): Not a directory"
    ):
        ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, "")


def test_a_missing_exporter_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to install it."""
    replace_export(monkeypatch, ModuleNotFoundError("no", name="onnxscript"))
    with pytest.raises(ModelLoadError, match=r"exported with onnxscript: pip install -e '\.\[onnx\]' in the checkout"):
        ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, "")


@pytest.mark.parametrize(("backend", "module"), [("onnx", "onnxruntime"), ("openvino", "openvino")])
def test_a_missing_runtime_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch, backend: str, module: str) -> None:
    """The error says how to install it."""
    replace_export(monkeypatch)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModelLoadError, match=rf"is an extra: pip install -e '\.\[{backend}\]' in the checkout"):
        load_backend(MINILM, replace(OPTIONS, backend=backend))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "onnx", "device": "cuda:1"}, "--backend onnx runs on a CPU; for cuda:1 use --backend torch"),
        ({"backend": "onnx", "dtype": "bfloat16"}, "--backend onnx computes in float32"),
        ({"backend": "openvino", "dtype": "float16"}, "--backend openvino computes in float32 or bfloat16"),
    ],
)
def test_options_that_a_runtime_does_not_have_are_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    """The error comes at the start, and names the option."""
    replace_export(monkeypatch)
    with pytest.raises(ModelLoadError, match=message):
        load_backend(MINILM, replace(OPTIONS, **options))


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_a_file_that_is_no_graph_is_reported(tmp_path: Path, backend: str) -> None:
    """The error has one line, whatever the runtime says."""
    SentenceTransformer(MINILM.path).save(str(tmp_path))
    (tmp_path / SHIPPED).parent.mkdir()
    (tmp_path / SHIPPED).write_bytes(b"no graph")
    with pytest.raises(ModelLoadError, match=f"--backend {backend} cannot run this model here: ") as caught:
        load_backend(parse_model(str(tmp_path)), replace(OPTIONS, backend=backend))
    assert "\n" not in str(caught.value)


def test_a_graph_of_other_weights_is_reported(tmp_path: Path, graphs: Path) -> None:
    """Its vectors are compared with those of torch before it serves."""
    model = SentenceTransformer(MINILM.path, device="cpu")
    exported = ensure_graph(model[0].model, NAMES, MINILM.path, "")  # type: ignore[arg-type]
    with torch.no_grad():
        next(model[0].parameters()).mul_(0.9)
    model.save(str(tmp_path))
    shutil.copytree(exported.parent, (tmp_path / SHIPPED).parent)
    with pytest.raises(ModelLoadError, match="--backend onnx gives other vectors than torch does, off by 0"):
        load_backend(parse_model(str(tmp_path)), replace(OPTIONS, backend="onnx"))


def test_other_models_need_torch(tmp_path: Path) -> None:
    """A static embedding has no transformer, and `null` is no model of sentence-transformers."""
    words = SentenceTransformer(MINILM.path).tokenizer.backend_tokenizer
    SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=32)]).save(str(tmp_path))
    with pytest.raises(ModelLoadError, match="--backend onnx runs transformers of texts"):
        load_backend(parse_model(str(tmp_path)), replace(OPTIONS, backend="onnx"))
    with pytest.raises(ModelLoadError, match="--compile is for transformers of texts"):
        load_backend(parse_model(str(tmp_path)), replace(OPTIONS, compile=True))
    with pytest.raises(ModelLoadError, match="runs sentence-transformers models, and null is none"):
        load_backend(parse_model("null"), replace(OPTIONS, backend="onnx"))


def test_a_model_that_torch_cannot_compile_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a C++ compiler is an example."""

    def run(*_args: object, **_features: object) -> None:
        raise FileNotFoundError("no c++")

    monkeypatch.setattr(torch, "compile", lambda *_args, **_options: run)
    with pytest.raises(ModelLoadError, match=r"--compile cannot run this model here: no c\+\+"):
        load_backend(MINILM, replace(OPTIONS, compile=True))


@pytest.mark.long
def test_no_runtime_is_imported_before_it_is_chosen() -> None:
    """An engine that runs torch imports none of them."""
    code = (
        "import sys; from gpuworker.backends.selection import load_backend; "
        "from gpuworker.model_spec import parse_model; "
        "from tests.unit.gpuworker.backends.options import OPTIONS; load_backend(parse_model('minilm'), OPTIONS); "
        "sys.exit(', '.join({'onnx', 'onnxruntime', 'onnxscript', 'openvino'} & set(sys.modules)) or 0)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=False, capture_output=True
    )
    assert completed.returncode == 0, completed.stderr


@pytest.mark.long
def test_openvino_sends_no_telemetry(tmp_path: Path, graphs: Path) -> None:
    """By default its package reports each import to Google Analytics, and creates a folder in the home folder."""
    code = (
        "import socket; from dataclasses import replace\n"
        "def refuse(*args, **_): print('LOOKED UP', args)\n"
        "socket.getaddrinfo = refuse\n"
        "from gpuworker.backends.selection import load_backend; from gpuworker.model_spec import parse_model\n"
        "from tests.unit.gpuworker.backends.options import OPTIONS\n"
        "backend = load_backend(parse_model('minilm'), replace(OPTIONS, backend='openvino'))\n"
        "print('LOADED', backend.dim)\n"
    )
    environment = os.environ | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(graphs)}
    command = [sys.executable, "-c", code]
    completed = subprocess.run(
        command, cwd=Path(__file__).parents[3], env=environment, check=True, capture_output=True, text=True
    )
    assert "LOADED 384" in completed.stdout
    assert "LOOKED UP" not in completed.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_an_export_logs_nothing_of_its_libraries(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The graph is in the cache after it, and the libraries have logged nothing."""
    with caplog.at_level(logging.INFO):
        path = ensure_graph(SentenceTransformer(MINILM.path, device="cpu")[0].model, NAMES, MINILM.path, "")  # type: ignore[arg-type]
    assert path == home / path.parent.name / FILE
    assert path.stat().st_size > 0
    assert not [each for each in caplog.records if each.name.startswith(("torch.onnx", "onnx"))]


@pytest.mark.parametrize(
    ("cores", "batches"), [(Cores(2, 1), 2), (Cores(2, 2), 1), (Cores(16, 2), 8), (Cores(3, 1), 3), (Cores(1, 1), 1)]
)
def test_batches_share_the_cores(cores: Cores, batches: int) -> None:
    """The number of batches that run at once is the number that fits on the cores."""
    assert cores.batches == batches
