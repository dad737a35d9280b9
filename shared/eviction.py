"""Policies by which Redis evicts keys when its memory is full. Pure."""

from __future__ import annotations

import re

EVICTION_WARNING = (
    "Redis removes keys when its memory is full, so accepted jobs, results and entries may vanish: set its "
    "maxmemory-policy to noeviction"
)


def parse_policy(info: bytes) -> str:
    """Returns the policy in the section `memory` of INFO; "" if Redis does not report it, as some managed services."""
    found = re.search(rb"^maxmemory_policy:(\S+)", info, re.MULTILINE)
    return found[1].decode("ascii", "replace") if found else ""


def evicts(policy: str) -> bool:
    """Whether Redis may remove keys that have not expired; not if its policy is unknown."""
    return policy not in ("", "noeviction")
