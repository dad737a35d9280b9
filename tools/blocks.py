"""Blocks of documents that programs write, between `<!-- MARKER -->` and `<!-- end -->`."""

from __future__ import annotations

import re


class MissingBlockError(LookupError):
    """The document has no block with this marker."""


def replace_block(text: str, marker: str, block: str) -> str:
    """Returns a document with the text of a block replaced. Raises MissingBlockError."""
    marked = re.compile(rf"(<!-- {re.escape(marker)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if marked.search(text) is None:
        raise MissingBlockError(
            f"the document has no block <!-- {marker} --> ... <!-- end -->: add it where the text belongs"
        )
    return marked.sub(lambda match: f"{match[1]}\n{block.strip()}\n\n{match[2]}", text)
