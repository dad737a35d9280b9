"""docs/functions.md: a model whose files bring code is refused as a folder, and served as a class."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from gpuworker.backends.sentence import SentenceBackend
from gpuworker.model_spec import ModelLoadError, parse_model
from tests import plain_http
from tests.integration.functions.conftest import ROOT
from tests.integration.gateway.gateway_cluster import GatewayCluster
from tests.unit.gpuworker.backends.options import OPTIONS
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(120)]

TEXTS = ["hello", "A longer text, of more words than the first one has.", "x " * 700]
MODULE = """
import torch

class Doubling(torch.nn.Module):
    def forward(self, features, **kwargs):
        features["sentence_embedding"] = 2 * features["sentence_embedding"]
        return features

    @classmethod
    def load(cls, *args, **kwargs):
        return cls()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A static model with seeded weights, whose last step is code in its files."""
    torch.manual_seed(3)
    path = tmp_path / "my-model"
    words = SentenceTransformer(parse_model("minilm").path).tokenizer.backend_tokenizer
    SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=32)]).save(str(path))
    modules = json.loads((path / "modules.json").read_text())
    modules.append({"idx": 1, "name": "1", "path": "", "type": "doubling.Doubling"})
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "doubling.py").write_text(MODULE)
    return path


async def test_the_class_of_the_page_serves_a_model_with_code(
    cluster: GatewayCluster, folder: Path, tmp_path: Path
) -> None:
    """Its vectors are those of `encode`; as a folder it is refused, and routes of text models do not have the class."""
    with pytest.raises(ModelLoadError, match="third-party code"):
        SentenceBackend(parse_model(str(folder)), OPTIONS)
    page = (ROOT / "docs/functions.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(# custom_model\.py\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "custom_model.py").write_text(code)
    cluster.environment["PYTHONPATH"] = f"{ROOT}:{tmp_path}"
    gateway = await cluster.start_gateway()
    await cluster.start_worker("custom_model:CustomModel", model_args=json.dumps({"path": str(folder)}))
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=60)
    answer = plain_http.post(f"{gateway.url}/predict", json={"inputs": TEXTS}, timeout=60)
    model = SentenceTransformer(str(folder), trust_remote_code=True)
    assert np.abs(np.asarray(answer.json()["outputs"]) - model.encode(TEXTS)).max() <= 1e-5
    for path, body in (("/embed", {"text": "a"}), ("/embed", {"inputs": "a"}), ("/v1/embeddings", {"input": "a"})):
        refused = plain_http.post(f"{gateway.url}{path}", json=body | {"model": cluster.keys.queue}, timeout=60)
        assert refused.status_code in (400, 422), path
        assert "/predict" in refused.text, path
