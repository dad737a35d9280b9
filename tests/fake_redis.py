"""A program in place of redis-server that loads kept data until a test lets it end, and then answers only PING."""

from __future__ import annotations

import sys
from pathlib import Path

_SOURCE = """#!{python}
import os, socket, sys
from pathlib import Path
port = int(sys.argv[sys.argv.index("--port") + 1])
paths = sys.argv[sys.argv.index("--unixsocket") + 1 :][:1] if "--unixsocket" in sys.argv else []
keeps_data = "everysec" in sys.argv
with Path("starts").open("a") as starts:
    starts.write("%d\\n" % os.getpid())
print("WARNING Memory overcommit must be enabled!", flush=True)
if paths:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(*paths)
    listener.listen()
else:
    listener = socket.create_server(("127.0.0.1", port))
with listener:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1024)
            is_loading = keeps_data and not Path("loaded").exists()
            Path("contacted").touch()
            pong = b"-LOADING Redis is loading the dataset in memory" if is_loading else b"+PONG"
            info = b"process_id:%d\\r\\n" % os.getpid()
            connection.sendall(b"%b\\r\\n$%d\\r\\n%b\\r\\n" % (pong, len(info), info))
"""


def make_fake_redis(folder: Path) -> Path:
    """Writes the program `redis-server` to a folder, which is created, and returns its path.

    In the folder of its data it adds its process id to the file `starts`, and creates `contacted` when a client comes.
    It loads kept data until there is a file `loaded`.
    """
    folder.mkdir()
    program = folder / "redis-server"
    program.write_text(_SOURCE.format(python=sys.executable))
    program.chmod(0o700)
    return program
