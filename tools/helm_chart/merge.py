"""Merges the objects of all scenarios into one tree, with conditions where they differ."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from tools.helm_chart.nodes import ABSENT, Branch, Choice, Node, Slot
from tools.helm_chart.scenarios import FLAGS, Scenario

Variants = Mapping[Scenario, Node]


def merge(variants: Variants) -> Node:
    """Returns the tree that is each scenario's variant under the conditions of its flags."""
    values = [*variants.values()]
    if all(each == values[0] for each in values):
        return values[0]
    if all(isinstance(each, Slot) and each.optional for each in values):
        literal = merge({scenario: each.literal for scenario, each in variants.items()})
        return Slot(values[0].expression, optional=True, literal=literal)
    if ABSENT in values:
        return _split(variants, lambda value: value is ABSENT)
    if all(isinstance(each, dict) and each for each in values):
        keys = sorted({key for each in values for key in each})
        return {key: merge({scenario: each.get(key, ABSENT) for scenario, each in variants.items()}) for key in keys}
    if all(isinstance(each, list) and each for each in values):
        merged = _merge_lists(variants)
        if merged is not None:
            return merged
    return _split(variants, repr)


def _split(variants: Variants, kind: Callable[[Node], Hashable]) -> Choice:
    """Returns a choice by the flag that tells the kinds of variants apart best."""
    groups = {flag: _groups(variants, flag, kind) for flag in FLAGS}
    flag = min(
        (flag for flag, found in groups.items() if len(found) > 1),
        key=lambda flag: sum(len(kinds) - 1 for kinds in groups[flag].values()),
    )
    branches: dict[Hashable, list[str | bool]] = {}
    for value, kinds in groups[flag].items():
        # Values of a flag with the same single kind share a branch.
        branches.setdefault(next(iter(kinds)) if len(kinds) == 1 else (value,), []).append(value)
    if len(branches) == 1:
        branches = {(value,): [value] for value in groups[flag]}
    parts = [
        (values, {each: node for each, node in variants.items() if getattr(each, flag) in values})
        for values in branches.values()
    ]
    return Choice(flag, tuple(Branch(tuple(values), merge(part)) for values, part in parts))


def _groups(variants: Variants, flag: str, kind: Callable[[Node], Hashable]) -> dict[str | bool, set[Hashable]]:
    """Returns the kinds of variants by the values of a flag."""
    groups: dict[str | bool, set[Hashable]] = {}
    for scenario, node in variants.items():
        groups.setdefault(getattr(scenario, flag), set()).add(kind(node))
    return groups


def _merge_lists(variants: Variants) -> list[Any] | None:
    """Returns a list of all items, of which some may be conditional. None if they have no common order.

    An item is the same in two lists if it has the same name. In lists without names it has the same number or, if the
    lengths differ, the same content.
    """
    items = [item for each in variants.values() for item in each]
    if not all(isinstance(item, dict) for item in items):
        return None
    by_name = all(_unique([item.get("name") for item in each]) for each in variants.values())
    if not by_name and len({len(each) for each in variants.values()}) == 1:
        columns = zip(*variants.values(), strict=True)
        return [merge(dict(zip(variants, column, strict=True))) for column in columns]
    keyed = {
        scenario: {(item["name"] if by_name else repr(item)): item for item in each}
        for scenario, each in variants.items()
    }
    order = _common_order([[*each] for each in keyed.values()])
    if order is None or any(len(each) != len(variants[scenario]) for scenario, each in keyed.items()):
        return None
    return [merge({scenario: each.get(key, ABSENT) for scenario, each in keyed.items()}) for key in order]


def _unique(names: list[Any]) -> bool:
    return None not in names and len({*names}) == len(names)


def _common_order(lists: list[list[str]]) -> list[str] | None:
    """Returns an order that has that of each list. None if there is none."""
    order: list[str] = []
    for each in sorted(lists, key=len, reverse=True):
        at = 0
        for key in each:
            if key in order:
                at = order.index(key) + 1
            else:
                order.insert(at, key)
                at += 1
    return order if all([key for key in order if key in each] == each for each in lists) else None
