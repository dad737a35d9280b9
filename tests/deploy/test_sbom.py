"""`make sbom` with its real tool, in a fresh environment: the bills are valid, complete and reproducible."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.sbom import IMAGES, ROOT, requirements_of, write_sbom

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

VALIDATE = """
import sys
from pathlib import Path
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(sys.argv[1]).read_text())
sys.exit(0 if fault is None else str(fault)[:500])
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the tools that the Makefile names."""
    folder = tmp_path_factory.mktemp("audit")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (tools,) = re.findall(r"^AUDIT_TOOLS := (.*)$", makefile, re.MULTILINE)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([f"{folder}/bin/python", "-m", "pip", "install", "--quiet", *tools.split()], check=True)
    return folder


def is_valid(environment: Path, bill: Path) -> bool:
    """Whether a bill follows the schema of CycloneDX 1.6, which the tool brings along."""
    command = [f"{environment}/bin/python", "-c", VALIDATE, str(bill)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("image", IMAGES)
def test_a_bill_is_valid_complete_and_reproducible(image: str, environment: Path, tmp_path: Path) -> None:
    """It has exactly the packages of the lock files and the library of the charts, with their versions."""
    tool = environment / "bin" / "cyclonedx-py"
    path = write_sbom(image, tool, tmp_path / "one")
    assert is_valid(environment, path)
    bill = json.loads(path.read_text(encoding="utf-8"))
    pins = re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", requirements_of(image), re.MULTILINE)
    found = {each["purl"]: (each["name"], each["version"]) for each in bill["components"]}
    assert {*found.values()} == {*pins, ("uplot", "1.6.32")}
    assert found["pkg:npm/uplot@1.6.32"][0] == "uplot"
    assert (bill["specVersion"], bill["metadata"]["component"]["name"]) == ("1.6", "redbatch")
    assert write_sbom(image, tool, tmp_path / "two").read_bytes() == path.read_bytes()
    path.write_text(path.read_text(encoding="utf-8").replace('"library"', '"no type"'), encoding="utf-8")
    assert not is_valid(environment, path)  # so that the check above can fail
