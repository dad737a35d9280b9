"""Writes the bill of materials (CycloneDX) of each image: what its lock files install, and what the console has.

Run by `make sbom`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "dist" / "sbom"
TOOL = ROOT / ".audit" / "bin" / "cyclonedx-py"
SPEC_VERSION = "1.6"
CHART_LIBRARY = ROOT / "api" / "pages" / "static" / "vendor" / "uplot" / "uPlot.iife.min.js"

IMAGES = {
    "gateway": ("gateway.lock",),
    "worker-cpu": ("worker.lock", "torch.txt", "model.lock"),
    "worker-cuda": ("worker.lock", "cuda.lock", "model.lock"),
}
"""The files in requirements/ that each image of docker/Dockerfile installs. model.lock is that of the bundled model."""


def requirements_of(image: str) -> str:
    """Returns the requirements of an image, with their hashes, as one file."""
    return "".join((ROOT / "requirements" / name).read_text(encoding="utf-8") for name in IMAGES[image])


def console_library() -> dict[str, object]:
    """Returns the component for the library of the console's charts, which the checkout has and no lock file names."""
    script = CHART_LIBRARY.read_text(encoding="utf-8")
    (version,) = re.findall(r"\A/\*! \S+/uPlot \(v([0-9.]+)\) \*/", script)
    package = f"pkg:npm/uplot@{version}"
    component = {"bom-ref": package, "type": "library", "name": "uplot", "version": version, "purl": package}
    return component | {"licenses": [{"license": {"id": "MIT"}}]}


def write_sbom(image: str, tool: Path = TOOL, folder: Path = FOLDER) -> Path:
    """Writes the bill of an image, of which the tool validates its part, and returns its path.

    It depends on the lock files and that library alone: the same ones give the same bytes.

    Raises:
        subprocess.CalledProcessError: the tool fails; it has printed why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{image}.cdx.json"
    options = ["--pyproject", "pyproject.toml", "--mc-type", "application", "--output-reproducible", "--validate"]
    form = ["--output-format", "JSON", "--spec-version", SPEC_VERSION, "--output-file", str(path)]
    command = [str(tool), "requirements", *options, *form, "-"]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}  # lock files do not say which package needs which
    subprocess.run(command, input=requirements_of(image), text=True, check=True, cwd=ROOT, env=environment)
    bill = json.loads(path.read_text(encoding="utf-8"))
    bill["components"].append(console_library())
    path.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    return path


def main() -> int:
    """Writes the bills of all images; returns the exit code."""
    for image in IMAGES:
        try:
            path = write_sbom(image)
        except subprocess.CalledProcessError as error:
            return error.returncode
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
