"""`make run` and `make test` create the environment in parts. A script in place of Python records what they install."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from shutil import copy2

import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
RUN = ["-r requirements/local.lock", "-r requirements/torch.txt", "-e ."]
DEV = ["-r requirements/dev.lock"]
LOCKS = ("torch.txt", "local.lock", "dev.lock")
ACTIVATE = "source .venv/bin/activate"

PYTHON = r"""#!/bin/sh
case "$*" in
*'print(platform'*) echo 3.11.2 ;;
'-m venv .venv')
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python
    for name in redbatch pytest; do
        printf '#!/bin/sh\nenv | grep ^PYTHONDONT\necho ran %s "$@"\n' $name >.venv/bin/$name
    done
    chmod +x .venv/bin/* ;;
*' pip '*)
    while [ -e hold ]; do touch held; sleep 0.02; done
    case "$*" in *"$(cat broken)") exit 1 ;; esac
    printf '%s\n' "$*" | sed 's/.* \(-[re] \)/\1/' >>installed ;;
esac
"""


@dataclass
class Checkout:
    """A copy of the Makefile and its script."""

    folder: Path

    def command(self, target: str, *variables: str) -> list[str]:
        """Returns the command that a contributor types, with the script in place of Python."""
        return ["make", target, f"PYTHON={self.folder}/python", *variables]

    def start(self, target: str, *variables: str) -> subprocess.Popen[str]:
        """Starts a make like a shell does, in a separate process group."""
        environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
        pipe = subprocess.PIPE
        # A shell starts what runs in the background with SIGINT ignored, and so all that the suite starts then.
        words = ["env", "--default-signal=INT", *self.command(target, *variables)]
        return subprocess.Popen(
            words, cwd=self.folder, env=environment, text=True, stdout=pipe, stderr=pipe, process_group=0
        )

    def make(self, target: str, *variables: str, code: int = 0) -> str:
        """Runs a make to its end, and returns its output."""
        process = self.start(target, *variables)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == code, output + errors
        return output + errors

    def installed(self) -> list[str]:
        """Returns what pip has installed since the last call."""
        path = self.folder / "installed"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def change(self, name: str) -> None:
        """Makes a lock file newer than an environment that has been complete for some time."""
        for stamp in (self.folder / ".venv").glob(".ready*"):
            os.utime(stamp, times=(stamp.stat().st_mtime - 60, stamp.stat().st_mtime - 60))
        os.utime(self.folder / "requirements" / name, times=(time.time() - 1, time.time() - 1))

    def hold(self) -> Path:
        """Lets the next pip wait until the returned file is removed; the file `held` then says that it waits."""
        path = self.folder / "hold"
        path.touch()
        return path


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh checkout, whose lock files are old."""
    folder = tmp_path / "checkout"
    (folder / "requirements").mkdir(parents=True)
    copy2(ROOT / "Makefile", folder)
    copy2(ROOT / "requirements" / "install.sh", folder / "requirements")
    for name in LOCKS:
        path = folder / "requirements" / name
        path.write_text("some==1\n", encoding="utf-8")
        os.utime(path, times=(0, 0))
    (folder / "python").write_text(PYTHON, encoding="utf-8")
    (folder / "python").chmod(0o755)
    (folder / "broken").write_text("nothing is", encoding="utf-8")
    return Checkout(folder)


def test_make_run_installs_what_running_needs(checkout: Checkout) -> None:
    """And then starts the cluster. A later one installs nothing."""
    assert checkout.make("run").splitlines()[-1] == "ran redbatch up"
    assert checkout.installed() == RUN
    assert "ran redbatch up" in checkout.make("run")
    assert checkout.installed() == []


def test_options_are_in_args(checkout: Checkout) -> None:
    """Any other variable of the command line would have no effect: it is an error, before anything is installed."""
    assert "ran redbatch up --port 8001 --workers 2" in checkout.make("run", "ARGS=--port 8001 --workers 2")
    checkout.installed()
    output = checkout.make("run", "MAX_BATCH_SIZE=8", code=2)
    assert 'MAX_BATCH_SIZE has no effect; give options in ARGS: make run ARGS="--max-batch-size 8"' in output
    assert "ran redbatch" not in output
    assert ACTIVATE in checkout.make("setup", "MAX_BATCH_SIZE=8")


def test_make_test_adds_what_tests_need(checkout: Checkout) -> None:
    """Changing between both installs nothing again."""
    checkout.make("run")
    assert checkout.installed() == RUN
    *_, notice, last = checkout.make("test").splitlines()
    assert "collects" in notice
    assert last.startswith("ran pytest")
    assert checkout.installed() == DEV
    for target in ("run", "test", "run", "setup"):
        checkout.make(target)
    assert checkout.installed() == []


def test_make_test_alone_installs_both_parts(checkout: Checkout) -> None:
    """`make run` then has all that it needs."""
    checkout.make("test")
    assert checkout.installed() == RUN + DEV
    checkout.make("run")
    assert checkout.installed() == []


@pytest.mark.parametrize("target", ["run", "test"])
def test_python_keeps_what_it_compiles(checkout: Checkout, target: str) -> None:
    """Where an environment forbids it, each process would compile torch again: pip compiles nothing here."""
    assert "PYTHONDONTWRITEBYTECODE" not in checkout.make(target)


def test_a_changed_lock_file_is_installed(checkout: Checkout) -> None:
    """Only by the targets that need it."""
    checkout.make("test")
    checkout.installed()
    checkout.change("dev.lock")
    checkout.make("run")
    assert checkout.installed() == []
    checkout.make("test")
    assert checkout.installed() == DEV
    checkout.change("local.lock")
    assert "Updating the environment in .venv (requirements/local.lock changed)" in checkout.make("run")
    assert checkout.installed() == RUN
    checkout.make("run")
    assert checkout.installed() == []
    checkout.make("test")
    checkout.installed()
    checkout.make("run")
    checkout.make("test")
    assert checkout.installed() == []


def test_a_moved_copy_is_created_again(checkout: Checkout) -> None:
    """Its scripts name the former folder."""
    checkout.make("test")
    checkout.installed()
    moved = Checkout(checkout.folder.rename(checkout.folder.with_name("moved")))
    marker = moved.folder / ".venv" / "marker"
    marker.touch()
    assert "Removing the unusable environment" in moved.make("test")
    assert moved.installed() == RUN + DEV
    assert not marker.exists()


@pytest.mark.parametrize("broken", [*RUN, *DEV])
def test_after_a_failed_step_make_continues(checkout: Checkout, broken: str) -> None:
    """The environment is kept. Tools that cannot be installed do not keep anyone from running."""
    (checkout.folder / "broken").write_text(broken, encoding="utf-8")
    assert "The environment is incomplete" in checkout.make("test", code=2)
    assert broken not in checkout.installed()
    marker = checkout.folder / ".venv" / "marker"
    marker.touch()
    checkout.make("run", code=2 if broken in RUN else 0)
    (checkout.folder / "broken").write_text("nothing is", encoding="utf-8")
    checkout.installed()
    assert "ran pytest" in checkout.make("test")
    assert checkout.installed() == ([] if broken in DEV else RUN) + DEV
    assert marker.exists()


@pytest.mark.parametrize("finished", [[], RUN], ids=["run", "dev"])
async def test_an_interrupted_environment_is_created_again(checkout: Checkout, finished: list[str]) -> None:
    """Ctrl-C may leave a package half installed."""
    if finished:
        checkout.make("run")
    hold = checkout.hold()
    process = checkout.start("test")
    await wait_until((checkout.folder / "held").exists, "pip runs")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert checkout.installed() == finished
    hold.unlink()
    assert "Removing the unusable environment" in checkout.make("test")
    assert checkout.installed() == RUN + DEV


async def test_concurrent_makes_install_once(checkout: Checkout) -> None:
    """The second waits for the first."""
    hold = checkout.hold()
    first = checkout.start("run")
    await wait_until((checkout.folder / "held").exists, "pip runs")
    second = checkout.start("test")
    assert second.stdout is not None
    assert "Waiting for another make" in second.stdout.readline()
    hold.unlink()
    assert "ran redbatch up" in first.communicate(timeout=60)[0]
    assert "ran pytest" in second.communicate(timeout=60)[0]
    assert checkout.installed() == RUN + DEV


def test_without_a_python_make_says_what_it_needs(checkout: Checkout) -> None:
    """It names what it has tried, and how to choose another."""
    (checkout.folder / "python").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    output = checkout.make("run", code=2)
    assert f"Redbatch needs Python 3.11 or newer; tried: {checkout.folder}/python." in output
    assert "make run PYTHON=/path/to/python3" in output
