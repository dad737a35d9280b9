"""The leases of GPUs as text and JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from redbatch.leases.command import show_leases
from redbatch.leases.view import as_json, as_text
from redbatch.queue_target import QueueTarget
from shared.gpu_leases import PoolState, SlotState, Waiter
from shared.gpu_pools import PoolMember, PoolView
from shared.messages import Heartbeat

BEAT = Heartbeat(
    *("first", "host-1", 7, "cuda:0", "minilm", 384, "ready", 21_000.0, 256, 64, 40_000),
    gpu_pool="node",
    gpu_slots=("0.0", "1.0"),
)
MEMBERS = tuple(
    PoolMember("minilm", replace(BEAT, worker=name, state=state))
    for name, state in (("first", "ready"), ("second", "standby"), ("third", "standby"))
)
POOL = PoolView(
    "node",
    PoolState(
        (SlotState("0.0", "first", 41, 12_900), SlotState("1.0"), SlotState("2.0", "dead", 42, 700)),
        (Waiter("third", ("0.0", "1.0"), 1_200),),
    ),
    MEMBERS,
)


def text_of(*pools: PoolView, name: str | None = None) -> str:
    """Returns the leases as a terminal shows them."""
    output = io.StringIO()
    Console(file=output, width=120).print(as_text(pools, name))
    return output.getvalue()


def test_json_has_slots_holders_and_waiters() -> None:
    """One line for each pool; a holder without a heartbeat has no queue, and a standby no known wait."""
    line, other = as_json([POOL, replace_name(POOL, "other")]).splitlines()
    assert json.loads(other)["pool"] == "other"
    first = {"worker": "first", "queue": "minilm", "host": "host-1"}
    slots = ["0.0", "1.0"]
    assert json.loads(line) == {
        "pool": "node",
        "slots": [
            {"slot": "0.0", "state": "held", **first, "fence": 41, "left_s": 12.9},
            {"slot": "1.0", "state": "free"},
            {"slot": "2.0", "state": "held", "worker": "dead", "queue": None, "host": None, "fence": 42, "left_s": 0.7},
        ],
        "waiting": [
            {**first, "worker": "third", "slots": slots, "waits_s": 1.2},
            {**first, "worker": "second", "slots": slots, "waits_s": None},
        ],
    }


def replace_name(pool: PoolView, name: str) -> PoolView:
    """Returns the same pool under another name."""
    return pool._replace(name=name)


def test_text_has_a_row_for_each_slot_and_waiter() -> None:
    """With times in seconds."""
    rows = [line.split() for line in text_of(POOL).splitlines()]
    assert rows[0] == ["Pool", "node"]
    assert rows[1] == ["slot", "state", "worker", "queue", "host", "left", "waits", "fence"]
    assert rows[2:] == [
        ["0.0", "held", "first", "minilm", "host-1", "12.9", "s", "41"],
        ["1.0", "free"],
        ["2.0", "held", "dead", "0.7", "s", "42"],
        ["0.0,1.0", "waiting", "third", "minilm", "host-1", "1.2", "s"],
        ["0.0,1.0", "waiting", "second", "minilm", "host-1"],
    ]


def test_without_pools_the_text_says_so() -> None:
    """And JSON has no line."""
    assert "--gpu-lease" in text_of()
    assert "uses a pool with the name node-7" in text_of(name="node-7")
    assert as_json([]) == ""


def test_an_unreachable_redis_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the password of the URL."""
    assert show_leases(QueueTarget("redis://:secret@127.0.0.1:1/0"), None, in_json=False, watch=False) == 1
    error = capsys.readouterr().err
    assert "secret" not in error
    assert len(error.splitlines()) == 1
