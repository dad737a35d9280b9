"""LangChain, LlamaIndex, and the clients of Cohere and Voyage, unmodified: `make test-frameworks`.

They run in a separate environment.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bench.peers import environment
from tests.integration.clients.test_openai import DOCUMENTS, model_of, unit_vector
from tests.integration.gateway.gateway_cluster import GatewayProcess

pytestmark = [pytest.mark.redis, pytest.mark.frameworks]

FOLDER = Path(__file__).parent / "frameworks"


@pytest.fixture(scope="session")
def python() -> Path:
    """The Python of the frameworks' environment, which takes a minute or two to create."""
    folder = environment.make_at(environment.FOLDER / "frameworks", FOLDER / "requirements.txt", [], print)
    return folder / "python"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", ["langchain.py", "llama_index.py", "cohere_client.py", "voyage.py"])
def test_a_thousand_documents(python: Path, served: GatewayProcess, script: str, tmp_path: Path) -> None:
    """A framework gets the vectors of 1,000 documents in order, with length 1, and downloads nothing."""
    job = {"url": f"{served.url}/v1", "model": model_of(served), "texts": DOCUMENTS}
    no_network = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}
    process = subprocess.run(
        [python, "-P", FOLDER / script],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **no_network},
    )
    assert process.returncode == 0, process.stderr
    actual = np.asarray(json.loads(process.stdout))
    assert np.abs(actual - [unit_vector(text) for text in DOCUMENTS]).max() <= 1e-6
