"""The images of Redbatch, built by the Dockerfile as docs/deploy.md builds them."""

from __future__ import annotations

from importlib.metadata import version

from tests.deploy.dockerfile import PATH, ROOT
from tests.engine.engine import Engine
from tests.engine.pip_mirror import wheel_folders, wheels_served

GATEWAY = f"redbatch-gateway:{version('redbatch')}"
WORKER = f"redbatch-worker:{version('redbatch')}-cpu"
TARGETS = {GATEWAY: "gateway", WORKER: "worker-cpu"}
BUILD_S = 900.0


def build_images(engine: Engine) -> None:
    """Builds the gateway's image and that of workers without a GPU.

    torch comes from the index of the Dockerfile, or from the folder of wheels that this machine has instead.
    """
    index = ["--build-arg", "TORCH_INDEX="] if wheel_folders() else []
    with wheels_served():
        for name, target in TARGETS.items():
            words = ["build", "--network=host", "-f", str(PATH), "--target", target, "-t", name, *index, str(ROOT)]
            engine.docker(*words, timeout_s=BUILD_S)


def size_mb(engine: Engine, name: str) -> float:
    """Returns the size of an image in MB (10^6 bytes)."""
    return float(engine.inspect(name, "image")["Size"]) / 1e6
