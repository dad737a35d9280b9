"""The clients and frameworks of retrieval, unmodified: `make test-frameworks`. They run in separate environments.

LangChain's and LlamaIndex's packages take no current version of Cohere's client, which has a separate environment.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.peers import environment
from tests.integration.clients.test_openai import DOCUMENTS, model_of, unit_vector
from tests.integration.clients.test_rerank import QUERY, TEXTS, order, post, queue_of
from tests.integration.gateway.gateway_cluster import GatewayProcess

pytestmark = [pytest.mark.redis, pytest.mark.frameworks, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parent / "frameworks"
REQUIREMENTS = {"frameworks": "requirements.txt", "cohere": "cohere.txt"}
NO_NETWORK = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}
TOP_N = 7
PASSAGES = [*TEXTS, *(f"passage {number}" for number in range(10))]
Run = Callable[..., Any]


@cache
def python_of(name: str) -> Path:
    """Returns the Python of an environment, which takes a minute or two to create."""
    return environment.make_at(environment.FOLDER / name, FOLDER / REQUIREMENTS[name], [], print) / "python"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a script in an environment, with a job on stdin and without a network; returns the JSON that it prints."""

    def run_script(name: str, script: str, **job: object) -> Any:  # noqa: ANN401
        process = subprocess.run(
            [python_of(name), "-P", FOLDER / script],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **NO_NETWORK},
        )
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return run_script


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("frameworks", "langchain.py"),
        ("frameworks", "llama_index.py"),
        ("frameworks", "cohere_client.py"),
        ("cohere", "cohere_client.py"),
        ("frameworks", "voyage.py"),
        ("frameworks", "litellm_embed.py"),
    ],
)
def test_a_thousand_documents(run: Run, served: GatewayProcess, name: str, script: str) -> None:
    """A framework gets the vectors of 1,000 documents in order, with length 1, and downloads nothing."""
    vectors = run(name, script, url=f"{served.url}/v1", model=model_of(served), texts=DOCUMENTS)
    assert np.abs(np.asarray(vectors) - [unit_vector(text) for text in DOCUMENTS]).max() <= 1e-6


NO_MODEL, NO_DOCUMENTS = "There is no such model here. Served: ", "invalid request: list of documents must not be empty"
NO_TEXTS, TOO_MANY = "`texts` cannot be empty", "batch size 201 > maximum allowed batch size 200"
COHERE = {
    f"{client}, {name}": message
    for client in ("ClientV2", "Client")
    for name, message in (("no documents", NO_DOCUMENTS), ("unknown model", NO_MODEL))
} | {"Client, embed": "those of POST /v2/embed are"}
LITELLM = {
    f"{provider}, {name}": message
    for provider in ("hosted_vllm", "huggingface", "jina_ai", "cohere")
    for name, message in (
        ("no documents", NO_TEXTS if provider == "huggingface" else NO_DOCUMENTS),
        ("unknown model", NO_MODEL),
    )
}


@pytest.mark.parametrize(
    ("name", "script", "messages"),
    [
        ("cohere", "cohere_rerank.py", COHERE),
        ("frameworks", "cohere_rerank.py", COHERE),
        ("frameworks", "langchain_rerank.py", {"unknown model": NO_MODEL}),
        (
            "frameworks",
            "llama_index_rerank.py",
            {"Cohere, unknown model": NO_MODEL, "TEI, too many texts": "AssertionError()"},
        ),
        ("frameworks", "haystack_rerank.py", {"too many texts": TOO_MANY}),
        ("frameworks", "litellm_rerank.py", LITELLM),
    ],
)
def test_texts_are_ranked(run: Run, gateway: GatewayProcess, name: str, script: str, messages: dict[str, str]) -> None:
    """Each client gets the order and the scores of a direct request, and shows the message of each error."""
    direct = post(gateway, "/rerank", {"query": QUERY, "texts": PASSAGES}).json()
    expected = [[each["index"], each["score"]] for each in direct]
    assert [index for index, _ in expected] == order(QUERY, PASSAGES)
    found = run(name, script, url=gateway.url, model=queue_of(gateway), query=QUERY, texts=PASSAGES, top_n=TOP_N)
    assert found["rankings"]
    for client, ranking in found["rankings"].items():
        assert ranking == expected[:TOP_N], client
    assert found["errors"].keys() == messages.keys()
    for case, message in messages.items():
        assert message in found["errors"][case], case
