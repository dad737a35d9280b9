"""Keys and queue names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.key_docs import KEY_DOCS, KeyDoc
from shared.key_table import job_keys_table, keys_table
from shared.keys import API_KEYS, LANES, QUEUES, USAGE_ADDED, USAGE_HOURS, Keys, PoolKeys

QUEUE_NAMES = st.from_regex(r"[a-z0-9._-]{1,64}", fullmatch=True)
IDS = st.text("0123456789abcdef", min_size=1, max_size=32)


def all_keys(keys: Keys, name: str) -> list[str]:
    """Returns the keys of a queue, with one request, gateway and worker of this name."""
    single = [keys.backlog, keys.epoch, keys.workers, *keys.lanes]
    return [*single, *(make(name) for make in (keys.reply, keys.bell, keys.submitted, keys.worker, keys.begun))]


@given(QUEUE_NAMES, IDS)
def test_all_keys_share_the_hash_tag(queue: str, name: str) -> None:
    """The text between the first braces decides the slot, and it is the queue's name in every key."""
    found = all_keys(Keys(queue), name)
    assert {re.findall(r"\{([^}]*)\}", key)[0] for key in found} == {queue}
    assert all(key.startswith(Keys(queue).prefix) for key in found)


@given(QUEUE_NAMES, IDS)
def test_no_two_keys_are_one(queue: str, name: str) -> None:
    """Names of requests, gateways and workers cannot collide with each other or with other keys."""
    found = all_keys(Keys(queue), name)
    assert len(set(found)) == len(found)


def test_each_key_is_documented_once() -> None:
    """KEY_DOCS names each key of a queue, of a pool and of the cluster, and no other; placeholders are not compared."""
    queue, pool = Keys("<queue>"), PoolKeys("<pool>")
    lanes = [name.replace(f":{lane}", ":<lane>") for name, lane in zip(queue.lanes, LANES, strict=True)]
    single = [queue.backlog, queue.epoch, queue.workers, queue.standby, queue.tenants, queue.dead, queue.results]
    single += [
        queue.jobs,
        queue.all_jobs,
        queue.owed,
        queue.uploads,
        queue.kept,
        *queue.cache,
        pool.fence,
        *pool.waiting(["<x>"]),
        QUEUES,
        API_KEYS,
        f"{USAGE_HOURS}<x>",
        f"{USAGE_ADDED}<x>",
    ]
    templates = (queue.reply, queue.bell, queue.submitted, queue.worker, queue.begun, queue.idempotency, queue.job)
    named = [template("<x>") for template in (*templates, pool.slot, pool.wake)]
    parts = [f"{queue.job('<x>')}:{part}" for part in ("in", "todo", "fed", "out", "failed")]
    documented = [key for doc in KEY_DOCS for key in doc.keys]
    assert sorted(re.sub(r"<(?!queue|pool|lane)[a-z ]+>", "<x>", key) for key in documented) == sorted(
        {*lanes, *single, *named, *parts}
    )


@pytest.mark.parametrize("doc", KEY_DOCS, ids=lambda doc: doc.keys[0])
def test_the_documents_show_each_key(doc: KeyDoc) -> None:
    """The table of jobs has the keys of jobs, that of the architecture the others, those of leases by suffix."""
    table = job_keys_table() if doc.page == "jobs" else keys_table()
    if doc.page == "leases":
        assert re.sub(r"^.*}(:\w+)(:.*)?$", r"\1", doc.keys[0]) in table
    else:
        assert f"`{doc.keys[0]}`" in table
        assert doc.holds in table


def test_the_tables_have_one_width() -> None:
    """Each row of a table has the number of cells of its head."""
    for table, width in ((keys_table(), 4), (job_keys_table(), 3)):
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()} == {width + 1}
