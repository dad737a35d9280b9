"""LangChain and LlamaIndex, unmodified, each in an environment of their own: `make test-frameworks`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bench.peers import environment
from tests.integration.clients.test_openai import DOCUMENTS, model_of, unit
from tests.integration.gateway.gateway_cluster import GatewayProcess

pytestmark = [pytest.mark.redis, pytest.mark.frameworks]

FOLDER = Path(__file__).parent / "frameworks"


@pytest.fixture(scope="session")
def python() -> Path:
    """The Python of their environment, which takes a minute or two to make."""
    made = environment.make_at(environment.FOLDER / "frameworks", FOLDER / "requirements.txt", [], print)
    return made / "python"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", ["langchain.py", "llama_index.py"])
def test_a_thousand_documents(python: Path, served: GatewayProcess, script: str, tmp_path: Path) -> None:
    """In order, of length 1; nothing is downloaded for it."""
    asked = {"url": f"{served.url}/v1", "model": model_of(served), "texts": DOCUMENTS}
    nothing = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}
    ran = subprocess.run(
        [python, "-P", FOLDER / script],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **nothing},
    )
    assert ran.returncode == 0, ran.stderr
    found = np.asarray(json.loads(ran.stdout))
    assert np.abs(found - [unit(text) for text in DOCUMENTS]).max() <= 1e-6
