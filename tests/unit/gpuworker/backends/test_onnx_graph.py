"""What other runtimes than torch run: where the graph comes from, and what cannot be."""

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

from gpuworker.backends import onnx_graph
from gpuworker.backends.load import load_backend
from gpuworker.backends.onnx_graph import FILE, SHIPPED, ensure_graph
from gpuworker.backends.runtimes import Cores
from gpuworker.models import ModelLoadError, parse_model
from tests.unit.gpuworker.backends.options import OPTIONS

pytestmark = pytest.mark.model

MINILM = parse_model("minilm")
NAMES = ["input_ids", "attention_mask"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "redbatch" / "onnx"


def exporting(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[Path]:
    """Replaces the exporter, which takes seconds, by one that notes where it writes; or fails."""
    made: list[Path] = []

    def export(*_of: object) -> None:
        path = _of[-1]
        assert isinstance(path, Path)
        if error is not None:
            path.write_bytes(b"half")
            raise error
        path.write_bytes(b"graph")
        made.append(path)

    monkeypatch.setattr(onnx_graph, "_export", export)
    return made


def test_a_graph_beside_the_weights_is_taken(tmp_path: Path, home: Path) -> None:
    """As most models on the hub have it. Nothing is made, nor kept."""
    shipped = tmp_path / "model" / SHIPPED
    shipped.parent.mkdir(parents=True)
    shipped.touch()
    assert ensure_graph(torch.nn.Identity(), NAMES, str(tmp_path / "model"), "") == shipped
    assert not home.exists()


def test_a_graph_is_made_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many engines of a host want it at the same time; another model has another."""
    made = exporting(monkeypatch)

    def path_of(commit: str) -> Path:
        return ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, commit)

    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(path_of, ["one"] * 8))
    assert len(made) == 1
    assert [path.read_bytes() for path in paths] == [b"graph"]
    assert path_of("two") not in paths
    assert sorted(each.suffix for each in home.iterdir()) == ["", "", ".lock", ".lock"]


def test_a_graph_is_found_where_nothing_can_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image, or in a folder that several hosts share."""
    exporting(monkeypatch)
    made = ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, "")
    made.parent.with_suffix(".lock").unlink()
    monkeypatch.setattr(fcntl, "flock", lambda *_: pytest.fail("nothing is to be locked"))
    assert ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, "") == made


def test_a_graph_that_fails_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start makes it."""
    exporting(monkeypatch, ValueError("no such operator"))
    with pytest.raises(
        ModelLoadError, match=r"cannot be exported as an ONNX graph \(no such operator\): use --backend torch"
    ):
        ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, "")
    assert [each.suffix for each in home.iterdir()] == [".lock"]


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variable that names another place."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        ModelLoadError, match=r"cannot be cached in .*file/redbatch/onnx \(XDG_CACHE_HOME\): Not a directory"
    ):
        ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, "")


def test_a_missing_exporter_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With how to install it."""
    exporting(monkeypatch, ModuleNotFoundError("no", name="onnxscript"))
    with pytest.raises(ModelLoadError, match=r"exported with onnxscript: pip install 'redbatch\[onnx\]'"):
        ensure_graph(torch.nn.Identity(), NAMES, MINILM.path, "")


@pytest.mark.parametrize(("backend", "module"), [("onnx", "onnxruntime"), ("openvino", "openvino")])
def test_a_missing_runtime_is_told(home: Path, monkeypatch: pytest.MonkeyPatch, backend: str, module: str) -> None:
    """With how to install it."""
    exporting(monkeypatch)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModelLoadError, match=rf"is an extra: pip install 'redbatch\[{backend}\]'"):
        load_backend(MINILM, replace(OPTIONS, backend=backend))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "onnx", "device": "cuda:1"}, "--backend onnx runs on a CPU; for cuda:1 use --backend torch"),
        ({"backend": "onnx", "dtype": "bfloat16"}, "--backend onnx computes in float32"),
        ({"backend": "openvino", "dtype": "float16"}, "--backend openvino computes in float32 or bfloat16"),
    ],
)
def test_what_a_runtime_cannot_do_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    """At the start, in one line."""
    exporting(monkeypatch)
    with pytest.raises(ModelLoadError, match=message):
        load_backend(MINILM, replace(OPTIONS, **options))


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_a_graph_that_is_none_is_told(tmp_path: Path, backend: str) -> None:
    """One line, where its runtime says what it will."""
    SentenceTransformer(MINILM.path).save(str(tmp_path))
    (tmp_path / SHIPPED).parent.mkdir()
    (tmp_path / SHIPPED).write_bytes(b"no graph")
    with pytest.raises(ModelLoadError, match=f"--backend {backend} cannot run this model here: ") as caught:
        load_backend(parse_model(str(tmp_path)), replace(OPTIONS, backend=backend))
    assert "\n" not in str(caught.value)


def test_a_graph_of_other_weights_is_told(tmp_path: Path, graphs: Path) -> None:
    """Its vectors are compared with those of torch, before it serves."""
    model = SentenceTransformer(MINILM.path, device="cpu")
    made = ensure_graph(model[0].model, NAMES, MINILM.path, "")  # type: ignore[arg-type]
    with torch.no_grad():
        next(model[0].parameters()).mul_(0.9)
    model.save(str(tmp_path))
    shutil.copytree(made.parent, (tmp_path / SHIPPED).parent)
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


def test_a_model_that_torch_cannot_compile_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a C++ compiler, say."""

    def run(*_of: object, **_features: object) -> None:
        raise FileNotFoundError("no c++")

    monkeypatch.setattr(torch, "compile", lambda *_of, **_options: run)
    with pytest.raises(ModelLoadError, match=r"--compile cannot run this model here: no c\+\+"):
        load_backend(MINILM, replace(OPTIONS, compile=True))


def test_no_runtime_is_imported_before_it_is_chosen() -> None:
    """An engine that runs torch knows nothing of them."""
    code = (
        "import sys; from gpuworker.backends.load import load_backend; from gpuworker.models import parse_model; "
        "from tests.unit.gpuworker.backends.options import OPTIONS; load_backend(parse_model('minilm'), OPTIONS); "
        "sys.exit(', '.join({'onnx', 'onnxruntime', 'onnxscript', 'openvino'} & set(sys.modules)) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=False, capture_output=True)
    assert ran.returncode == 0, ran.stderr


def test_openvino_calls_nobody(tmp_path: Path, graphs: Path) -> None:
    """Its package would tell Google Analytics of each import, and leave a folder at home."""
    code = (
        "import socket; from dataclasses import replace\n"
        "def refused(*of, **_): print('ASKED FOR', of)\n"
        "socket.getaddrinfo = refused\n"
        "from gpuworker.backends.load import load_backend; from gpuworker.models import parse_model\n"
        "from tests.unit.gpuworker.backends.options import OPTIONS\n"
        "backend = load_backend(parse_model('minilm'), replace(OPTIONS, backend='openvino'))\n"
        "print('LOADED', backend.dim)\n"
    )
    environment = os.environ | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(graphs)}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(
        command, cwd=Path(__file__).parents[3], env=environment, check=True, capture_output=True, text=True
    )
    assert "LOADED 384" in ran.stdout
    assert "ASKED FOR" not in ran.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_making_a_graph_is_quiet(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is the libraries that would talk; what is made is a graph and its weights."""
    with caplog.at_level(logging.INFO):
        path = ensure_graph(SentenceTransformer(MINILM.path, device="cpu")[0].model, NAMES, MINILM.path, "")  # type: ignore[arg-type]
    assert path == home / path.parent.name / FILE
    assert path.stat().st_size > 0
    assert not [each for each in caplog.records if each.name.startswith(("torch.onnx", "onnx"))]


@pytest.mark.parametrize(
    ("cores", "batches"), [(Cores(2, 1), 2), (Cores(2, 2), 1), (Cores(16, 2), 8), (Cores(3, 1), 3), (Cores(1, 1), 1)]
)
def test_batches_share_the_cores(cores: Cores, batches: int) -> None:
    """As many at once as fit."""
    assert cores.batches == batches
