"""The tables of Redis keys in docs/architecture.md and docs/jobs.md, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from shared.key_docs import KEY_DOCS, KeyDoc

_GROUPS: dict[str, tuple[str, str, str, str]] = {
    "jobs": (
        "`rb:{<queue>}:jobs`, `:jobs:…`, `:job:…`, `:idempotency:…`, `:results`",
        "",
        "both",
        "[docs/jobs.md](jobs.md#how-it-works)",
    ),
    "leases": (
        "`rb:{gpu:<pool>}:slot:<slot>`, `:fence`, `:waiting:…`, `:asked:…`, `:wake:…`",
        "",
        "workers",
        "[docs/leases.md](leases.md): who uses a GPU",
    ),
}
"""Rows of docs/architecture.md that stand for the keys of another document."""


def keys_table() -> str:
    """Returns the table of docs/architecture.md: every key, those of jobs and of leases in one row each."""
    rows: list[Sequence[str]] = []
    for page, docs in groupby(KEY_DOCS, key=lambda doc: doc.page):
        if page in _GROUPS:
            rows.append(_GROUPS[page])
        else:
            rows += [(_names(doc), doc.type, doc.written_by, _lifetime(doc)) for doc in docs]
    return _markdown(("key", "type", "written by", "lifetime"), rows)


def job_keys_table() -> str:
    """Returns the table of docs/jobs.md: the keys of jobs."""
    rows = [(_names(doc), doc.type, doc.holds) for doc in KEY_DOCS if doc.page == "jobs"]
    return _markdown(("key", "type", "what it is"), rows)


def _names(doc: KeyDoc) -> str:
    """The first key is written in full, the others from their hash tag on."""
    first, *others = doc.keys
    tag = first[: first.find("}") + 1]
    return ", ".join(f"`{name}`" for name in (first, *(other.removeprefix(tag) for other in others)))


def _lifetime(doc: KeyDoc) -> str:
    return "; ".join(filter(None, (doc.lifetime, doc.holds)))


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(row).replace("|  |", "| |") + " |" for row in rows]
    return "\n".join(lines) + "\n"
