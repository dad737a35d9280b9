"""docs/functions.md: a model whose files bring code is refused as a folder, and served as a class."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from gpuworker.backends.sentence import SentenceBackend
from gpuworker.model_spec import ModelLoadError, parse_model
from tests import plain_http
from tests.integration.functions.conftest import ROOT
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.unit.gpuworker.backends.options import OPTIONS
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(240)]

TEXTS = ["hello", "A longer text, of more words than the first one has.", "x " * 700]
PAGE = (ROOT / "docs/functions.md").read_text(encoding="utf-8")


def write_file_of_page(folder: Path, name: str) -> None:
    """Writes a Python file that the page shows."""
    [code] = re.findall(rf"^```python\n(# {re.escape(name)}\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (folder / name).write_text(code)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model that the page makes, whose last step is code in its files."""
    write_file_of_page(tmp_path, "make_model.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "make_model.py"], cwd=tmp_path, env=environment, check=True, timeout=60)
    return tmp_path / "model-with-code"


async def test_the_class_of_the_page_serves_a_model_with_code(
    cluster: GatewayCluster, folder: Path, tmp_path: Path
) -> None:
    """Its vectors are those of `encode`; as a folder it is refused, and routes of text models do not have the class."""
    with pytest.raises(ModelLoadError, match="third-party code"):
        SentenceBackend(parse_model(str(folder)), OPTIONS)
    write_file_of_page(tmp_path, "custom_model.py")
    cluster.environment["PYTHONPATH"] = f"{ROOT}:{tmp_path}"
    cluster.environment["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # a bar is no line of the log
    gateway = await cluster.start_gateway()
    await cluster.start_worker("custom_model:CustomModel", model_args=json.dumps({"path": str(folder)}))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=60)
    answer = plain_http.post(f"{gateway.url}/predict", json={"inputs": TEXTS}, timeout=60)
    model = SentenceTransformer(str(folder), trust_remote_code=True)
    outputs = np.asarray(answer.json()["outputs"])
    assert np.abs(outputs - model.encode(TEXTS)).max() <= 1e-5
    assert np.linalg.norm(outputs, axis=1) == pytest.approx(2)  # the code ran
    for path, body in (("/embed", {"text": "a"}), ("/embed", {"inputs": "a"}), ("/v1/embeddings", {"input": "a"})):
        refused = plain_http.post(f"{gateway.url}{path}", json=body | {"model": cluster.keys.queue}, timeout=60)
        assert refused.status_code in (400, 422, 424), path
        assert "/predict" in refused.text, path
