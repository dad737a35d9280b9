"""Reads a Redis as another user: `python -I read_as_user.py URL FOLDER UID`, run by root.

Prints the number of keys, or the error. It fails if that user cannot enter the folder, which has Redis' files.
"""

import os
import socket
import sys
from urllib.parse import unquote, urlsplit


def count_keys(url: str) -> int:
    """Returns the number of keys of the Redis at a URL. Raises OSError."""
    parts = urlsplit(url)
    is_socket = parts.scheme == "unix"
    with socket.socket(socket.AF_UNIX if is_socket else socket.AF_INET) as connection:
        connection.settimeout(10)
        connection.connect(unquote(parts.path) if is_socket else (parts.hostname, parts.port))
        connection.sendall(b"DBSIZE\r\n")
        return int(connection.recv(100).strip(b":\r\n"))


def main(url: str, folder: str, user: str) -> None:
    """Becomes the user, and reads."""
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
    os.scandir(folder).close()
    try:
        print(count_keys(url))  # noqa: T201 - the result
    except OSError as error:
        print(type(error).__name__)  # noqa: T201 - the result


if __name__ == "__main__":
    main(*sys.argv[1:])
