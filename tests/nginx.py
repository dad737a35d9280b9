"""The real nginx as a process of a test: its binary, and a configuration that keeps all files in one folder."""

from __future__ import annotations

import shutil
from pathlib import Path

CONFIGURATION = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
{user}
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{block}
}}
"""


def nginx() -> str | None:
    """Returns the path of nginx; None if it is not installed. On Debian it is in a folder of root's PATH only."""
    return shutil.which("nginx", path="/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin")


def write_configuration(folder: Path, block: str) -> None:
    """Writes `nginx.conf` with this content of the `http` block."""
    user = "user root;" if folder.owner() == "root" else ""
    text = CONFIGURATION.format(folder=folder, user=user, block=block)
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
