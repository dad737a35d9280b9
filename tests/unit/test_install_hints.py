"""What messages and documents tell users to install: extras of the checkout. No index has a package of this name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tools.plain_language import tracked_files

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
FROM_INDEX = re.compile(r"\b(?:pip|pipx|uv|uvx|poetry)\b[\"']? (?:install|add|run|tool)\b[^#`\n]*\bredbatch\b(?!-)")
FROM_CHECKOUT = re.compile(r"pip install (-e )?'\.\\?\[([^]]*)\]'(.*)")


def texts() -> dict[str, str]:
    """Returns the files that users and operators read, messages included."""
    paths = [path for path in tracked_files() if not path.startswith(("tests/", "bench/peers/"))]
    suffixes = {".md", ".py", ".sh", ".yaml", ".yml", ".toml", ""}
    readable = [path for path in map(Path, paths) if path.suffix in suffixes]
    return {str(path): (ROOT / path).read_text(encoding="utf-8") for path in readable if (ROOT / path).is_file()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pip install 'redbatch[onnx]'", True),
        ("Install it with `pip install -U redbatch`.", True),
        ("uv add redbatch", True),
        ("pip install -e '.[client]'   # redbatch embed", False),
        ('"$VENV/bin/pip" install --no-index "$WHEELS"/redbatch-*.whl', False),
    ],
)
def test_the_pattern_finds_installations_from_an_index(text: str, *, expected: bool) -> None:
    """Comments and wheels with a path are none."""
    assert bool(FROM_INDEX.search(text)) == expected


def test_nothing_installs_redbatch_from_an_index() -> None:
    """What an index has under this name would not be Redbatch."""
    found = {path: match[0] for path, text in texts().items() for match in FROM_INDEX.finditer(text)}
    assert found == {}


def test_hints_name_an_extra_and_the_checkout() -> None:
    """Each extra exists. A message says where its command runs, as its reader may be anywhere."""
    hints = {path: FROM_CHECKOUT.findall(text) for path, text in texts().items()}
    in_messages = [hint for path, found in hints.items() if path.endswith(".py") for hint in found]
    assert len(in_messages) > 10
    assert all(editable and rest.startswith(" in the checkout") for editable, _, rest in in_messages), in_messages
    named = {extra for found in hints.values() for _, extras, _ in found for extra in extras.split(",")}
    assert {"bench", "local", "onnx", "openvino", "parquet", "tracing"} <= named
    assert named - {"{process}"} <= EXTRAS.keys()
