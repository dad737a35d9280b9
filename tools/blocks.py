"""Blocks of documents that programs write, between `<!-- MARKER -->` and `<!-- end -->`."""

from __future__ import annotations

import re


class MissingBlockError(LookupError):
    """The document has no block with this marker."""


def find_block(text: str, marker: str) -> str:
    """Returns the text of a block in a document. Raises MissingBlockError."""
    return _match(text, marker)[1].strip()


def replace_block(text: str, marker: str, block: str) -> str:
    """Returns a document with the text of a block replaced. Raises MissingBlockError."""
    match = _match(text, marker)
    return f"{text[: match.start(1)]}\n{block.strip()}\n\n{text[match.end(1) :]}"


def _match(text: str, marker: str) -> re.Match[str]:
    match = re.search(rf"<!-- {re.escape(marker)} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    if match is None:
        raise MissingBlockError(
            f"the document has no block <!-- {marker} --> ... <!-- end -->: add it where the text belongs"
        )
    return match
