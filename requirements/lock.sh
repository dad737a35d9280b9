#!/usr/bin/env bash
# Writes the lock files: exact versions with hashes for a gateway, a worker and development.
# torch stays out of them, because its wheels differ by device: requirements/torch.txt pins its version,
# and `pip install` with the index of your choice decides between CPU and CUDA builds.
set -euo pipefail
cd "$(dirname "$0")/.."
export CUSTOM_COMPILE_COMMAND="make lock"
for name in gateway worker dev; do
    echo "locking $name"
    pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
        --no-emit-find-links --no-emit-index-url --no-emit-trusted-host \
        --unsafe-package torch --unsafe-package redbatch --constraint requirements/torch.txt \
        --extra "$name" --output-file "requirements/$name.lock" pyproject.toml
    # Cut the block that lists the unsafe packages, and the project itself.
    python - "requirements/$name.lock" <<'PY'
import pathlib, re, sys
path = pathlib.Path(sys.argv[1])
blocks = re.split(r"(?m)^(?=\S)", path.read_text())
kept = [block for block in blocks if not re.match(r"(torch|redbatch)\b|# (WARNING|Consider|The following)", block)]
path.write_text("".join(kept).rstrip() + "\n")
PY
done
