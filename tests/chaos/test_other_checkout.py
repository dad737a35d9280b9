"""The option --checkout of the scenes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.chaos.other_checkout import PACKAGES, ROOT, child_path


def test_processes_have_the_other_packages_and_these_tests(tmp_path: Path) -> None:
    """Although the other checkout has its own folder `tests`, and this one has the packages."""
    checkout, links = tmp_path / "checkout", tmp_path / "links"
    links.mkdir()
    for package in (*PACKAGES, "tests"):
        (checkout / package).mkdir(parents=True)
        (checkout / package / "__init__.py").touch()
    code = "import api, tests; print(api.__file__, tests.__file__)"
    environment = os.environ | {"PYTHONPATH": child_path(checkout, links)}
    output = subprocess.check_output([sys.executable, "-P", "-c", code], env=environment, text=True)
    assert output.split() == [f"{links}/api/__init__.py", f"{ROOT}/tests/__init__.py"]
