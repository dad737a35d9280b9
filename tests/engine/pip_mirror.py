"""The configuration of pip in the base image: that of this machine, with its folders of wheels served over loopback."""

from __future__ import annotations

import configparser
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

from tests.engine.commands import run

ADDRESS = ("127.83.66.1", 8098)
"""Part of the base image, whose layers are kept for the next run: hence fixed, and unlikely to be taken."""

KEPT = ("cert", "default-timeout", "extra-index-url", "index-url", "timeout", "trusted-host")


@cache
def machine_options() -> dict[str, str]:
    """Returns pip's options on this machine, by name; a variable of the environment precedes a file."""
    found: dict[str, str] = {}
    for line in sorted(run([sys.executable, "-m", "pip", "config", "list"]).splitlines(), reverse=True):
        name, _, value = line.partition("=")
        found[name.rpartition(".")[2]] = value.strip("'\"").replace("\\n", " ")
    return found


def wheel_folders() -> list[Path]:
    """Returns the folders with wheels that pip looks into here."""
    words = machine_options().get("find-links", "").split()
    return [Path(each.removeprefix("file://")) for each in words if Path(each.removeprefix("file://")).is_dir()]


def pip_configuration() -> str:
    """Returns the pip.conf of the base image. Indexes in folders of this machine are left out."""
    config, options = configparser.ConfigParser(), machine_options()
    config["global"] = {}
    for name in KEPT:
        words = [each for each in options.get(name, "").split() if not each.startswith("file:")]
        if words:
            config["global"][name] = "\n".join(words)
    if wheel_folders():
        host, port = ADDRESS
        links = [f"http://{host}:{port}/{index}/" for index in range(len(wheel_folders()))]
        config["global"]["find-links"] = "\n".join(links)
    text = io.StringIO()
    config.write(text)
    return text.getvalue()


class _Handler(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        """Returns the path of a file in the folder with the number that the URL begins with."""
        number, _, name = unquote(path).strip("/").partition("/")
        folders = wheel_folders()
        if not number.isdigit() or int(number) >= len(folders):
            return "/nonexistent"
        return str(folders[int(number)] / Path(name).name) if name else f"{folders[int(number)]}/"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
        """Logs nothing."""


@contextmanager
def wheels_served() -> Iterator[None]:
    """Serves the folders of wheels for the time of the block; does nothing if there are none."""
    if not wheel_folders():
        yield
        return
    with ThreadingHTTPServer(ADDRESS, _Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()
