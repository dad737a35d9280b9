"""The gateway that a command sends requests to: the one that is named, or that of a running `redbatch up`."""

from __future__ import annotations

from redbatch.up.run_file import find_running_ups, find_up

DEFAULT_URL = "http://127.0.0.1:8080"


def find_gateway_url(url: str | None, up: int | None) -> str:
    """Returns a URL that is given; or else that of this user's running `redbatch up`, or DEFAULT_URL if none runs.

    Raises NoUpError: none has the port `up`, or several run and none was chosen; the message lists the choices.
    """
    if url is not None:
        return url
    if up is None and not find_running_ups():
        return DEFAULT_URL
    return find_up(up, "the URL of a gateway with --url").url
