"""The shell and Python blocks of the documents: which there are, and which need something that a test has not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])

FRAMEWORKS = r"^(import|from) (cohere|voyageai|litellm|langchain_\w+|llama_index|haystack)\b"
"""What a Python block for another client begins with, which needs its packages."""

ELSEWHERE = {
    r"\bkubectl ": "a Kubernetes cluster; tests/deploy checks the manifests",
    r"\bdocker |\bdocker-compose ": "a Docker engine; tests/engine runs those of a Swarm",
    r"^make ": "an environment to install, or the suite itself; tests/integration/test_make.py",
    r"--gpu-lease ": "a GPU; tests/integration/worker has the leases",
    r"^\.venv/bin/pip install": "an environment to install; the suite has Pillow",
    r"^pip install '\.\[gateway\]'": "an environment to install; tests/deploy/test_images.py",
    r"--duration 45s": "two minutes; tests/integration/test_bench.py sends such loads",
    r"bench \S+ --path /predict": "a gateway of this function alone; tests/integration/functions runs the page's load",
    r"examples/rag\.py": "the documents; tests/integration/gateway/test_rag.py",
    FRAMEWORKS: "a separate environment; tests/integration/clients/test_frameworks.py",
    r"\Aimport secrets, time, msgpack": "a Redis on a port; tests/integration/worker/test_documented_client.py",
    r"^class |\bSquarer\(": "a worker of each class; tests/integration/functions/test_documentation.py",
    r"\$first|\$old|\$last": "several Redis; tests/integration/gateway/test_shard_removal.py, and that of commands",
    r"my-(classifier|reranker)": "a classifier, or a reranker; tests/integration/clients",
    r"8080/console/": "a key and dead letters; tests/integration/gateway/test_console_actions.py sends such requests",
    r"my-bge-m3": "a hybrid model; tests/integration/cluster/test_hybrid.py sends such requests",
    r"@photo\.jpg": "a class that takes photos; tests/integration/functions sends such bodies",
}
"""What a block that matches the pattern needs. Every other block runs in `test_commands.py`."""

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_SHELLS = ("sh", "shell", "bash")
_SESSION_COMMAND = re.compile(r"^\$ (.*\n)", re.MULTILINE)
"""A command in a block that shows what it prints, too."""

_PYTHON_FILE = re.compile(r"^```python\n(# (\w+\.py)\n.*?)^```$", re.MULTILINE | re.DOTALL)
"""A Python block that begins with the name of its file."""


class Block(NamedTuple):
    """A block of a document; in a shell's language unless `is_python`."""

    document: str
    line: int
    code: str
    is_python: bool = False

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(document: Path) -> Iterator[Block]:
    """Yields the shell and Python blocks of a document, in their order; not those that show a file (`python_files`).

    Of a session, the code is its commands.
    """
    text = document.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        code = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
        if match[2] not in (*_SHELLS, "python"):
            code = "".join(_SESSION_COMMAND.findall(code))
        if code and not re.match(r"# \w+\.py\n", code):
            yield Block(document.name, text.count("\n", 0, match.start()) + 1, code, match[2] == "python")


def python_files(document: Path) -> list[tuple[str, str]]:
    """Returns name and code of each Python file that a document shows."""
    text = document.read_text(encoding="utf-8") if document.is_file() else ""
    return [(match[2], match[1]) for match in _PYTHON_FILE.finditer(text)]


def reason_elsewhere(code: str) -> str | None:
    """Returns what a block needs that a test has not, or None: it runs here."""
    return next((reason for pattern, reason in ELSEWHERE.items() if re.search(pattern, code, re.MULTILINE)), None)
