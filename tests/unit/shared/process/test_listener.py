"""The listening socket: binding its port, and the limit on open files."""

from __future__ import annotations

import resource
import socket

import pytest

from shared.process.listener import ListenError, listen, raise_open_file_limit


def test_port_zero_is_a_free_one() -> None:
    """Port 0 picks a free port and listens at once, so that it is not taken before the gateways are up."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), timeout=5):
        pass


def test_a_taken_port_says_what_to_do() -> None:
    """The error is one line, with the port and the remedies."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ListenError, match=f"^port {port} is taken: .*--port") as error:
            listen("127.0.0.1", port)
    assert "\n" not in str(error.value)


def test_an_address_of_another_machine_says_what_to_do() -> None:
    """The error names the address and the flags."""
    with pytest.raises(ListenError, match=r"192\.0\.2\.1.*--host"):
        listen("192.0.2.1", 0)


def test_a_port_can_be_taken_again_at_once() -> None:
    """A restart does not wait for old connections to time out."""
    with listen("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        with socket.create_connection(address, timeout=5):
            listener.accept()[0].close()  # the listener's side closes first and is left in TIME_WAIT
    listen(*address).close()


def test_the_limit_of_open_files_is_raised() -> None:
    """The limit is raised to the maximum of this user."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        raise_open_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
