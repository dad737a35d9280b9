"""Compares the lock files with the known vulnerabilities of PyPI: `make audit`.

Exits with 0 if none is known for any package, with 1 if some are, and with 2 if that could not be found out: pip-audit
itself exits with 0 where it could look up nothing, as behind a mirror that serves packages only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TOOL = ROOT / ".audit" / "bin" / "pip-audit"
CLEAN, VULNERABLE, UNKNOWN = 0, 1, 2

LOCKS = ("gateway", "worker", "cuda", "model", "local", "dev", "build")
"""All lock files: those of images first, then those of developers. torch is in cuda.lock."""

NO_DATA = """\
The vulnerabilities of {what} could not be looked up, so nothing is known about them: this is no pass.
`make audit` needs the JSON API of PyPI (a mirror of packages alone is not enough). Run it where that can be reached;
without it, see "Dependencies and images" in SECURITY.md.
"""


def audit(tool: Path = TOOL, locks: Sequence[str] = LOCKS) -> int:
    """Audits lock files, prints what is found, and returns the exit code."""
    files = [word for name in locks for word in ("--requirement", f"requirements/{name}.lock")]
    options = ["--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run([str(tool), *options, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        packages: list[Mapping[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        sys.stderr.write(f"{done.stderr}\n{NO_DATA.format(what='the packages')}")
        return UNKNOWN
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    found = [(each, fault) for each in packages for fault in each.get("vulns", [])]
    for package, fault in found:
        fixes = ", ".join(fault["fix_versions"]) or "no version yet"
        names = ", ".join([fault["id"], *fault.get("aliases", [])])
        sys.stdout.write(f"{package['name']} {package['version']}: {names}; fixed in {fixes}\n")
    if skipped or not packages:
        what = f"{len(skipped)} of {len(packages)} packages ({', '.join(skipped[:10])})"
        sys.stderr.write(NO_DATA.format(what=what))
    if found:
        return VULNERABLE
    if skipped or not packages:
        return UNKNOWN
    sys.stdout.write(f"No vulnerability is known in {len(packages)} packages.\n")
    return CLEAN


if __name__ == "__main__":
    sys.exit(audit())
