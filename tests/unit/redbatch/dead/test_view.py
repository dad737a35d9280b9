"""Dead letters with binary inputs."""

from __future__ import annotations

import hashlib
from io import StringIO

import pytest
from rich.console import Console

from redbatch.dead.view import as_text
from shared.codec import encode_binary, encode_body
from shared.dead_letter_view import letter_as_dict
from shared.dead_letters import DeadLetter
from shared.messages import BYTES, PREDICT, Body


@pytest.mark.parametrize("with_text", [False, True])
def test_a_binary_input_is_described(with_text: bool) -> None:
    """Its kind, size and digest are shown, never its bytes; a JSON input beside it is shown as JSON."""
    body = encode_body(Body(PREDICT, ('{"a":1}', encode_binary(BYTES, b"secret"))))
    letter = DeadLetter("1-1", "interactive", "1-0", "r", 2, 3, "w", "input_failed", 0, 0, body)
    expected = f"bytes, 6 bytes, SHA-256 {hashlib.sha256(b'secret').hexdigest()[:16]}…"
    out = StringIO()
    Console(file=out, width=200).print(as_text(letter, with_text=with_text))
    assert expected in out.getvalue()
    assert "secret" not in out.getvalue()
    assert ("input 0" in out.getvalue(), "text 0" in out.getvalue()) == (True, False)
    if with_text:
        assert letter_as_dict(letter, with_text=True)["texts"] == ['{"a":1}', expected]
