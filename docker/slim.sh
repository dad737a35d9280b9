#!/bin/sh
# Removes from the environment what no process of Redbatch uses: tests of packages, sources of their extensions, and
# bytecode of modules that are not imported. A gateway's loses the installer too; images on top of a worker's may install
# packages, and compile with torch's headers.
set -eu
packages=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
torch=$packages/torch
find "$packages" -path "$torch/include" -prune -o -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -rf {} +
find "$packages" -path "$torch/include" -prune -o -type f \( -name '*.a' -o -name '*.c' -o -name '*.cpp' -o -name '*.h' \
    -o -name '*.hpp' -o -name '*.exe' -o -name '*.pxd' -o -name '*.pyi' -o -name '*.pyx' \) -exec rm {} +
# Symbols for debuggers, 120 MB. The libraries in *.libs were patched for their wheels; those of NVIDIA stay as they are.
if [ ! -d "$packages/nvidia" ]; then
    find "$packages" -path '*.libs' -prune -o -type f \( -name '*.so' -o -name '*.so.*' \) -exec strip --strip-unneeded {} +
    "$VENV/bin/python" -c 'import numpy, uvloop'
fi
if [ -d "$torch" ]; then
    rm -rf "$torch/test"
    # torch looks for this program as it is imported; the others are for developers.
    find "$torch/bin" -type f ! -name torch_shm_manager -exec rm {} +
else
    "$VENV/bin/pip" uninstall --quiet --yes setuptools pip
    rm -rf "$packages/pip" "$packages/setuptools"  # bytecode that the uninstallation wrote
fi
env -u PYTHONDONTWRITEBYTECODE "$VENV/bin/python" bytecode.py
