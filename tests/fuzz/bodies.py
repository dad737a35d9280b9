"""Bodies: valid ones of each route, and mutations of their structure or of their bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.fuzz.choices import Choices
from tests.fuzz.routes import JSON, NPY, Route

MAX_NESTING = 3_000
_PLACE = "@place@"

VALUES = (
    *("null", "true", "false", "{}", "[]", "[[]]", "[null]", '""', '" "', "0", "-1", "1.5", "-0", "1e400", "1e-400"),
    *("NaN", "Infinity", "-Infinity", "9223372036854775808", "-9223372036854775809", "18446744073709551616"),
    *("4294967295", "4294967296", "1" * 400, "0." + "9" * 400, "01", "+1", ".5", "1.", "0x10", "1_000"),
    *('"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\uD83D\\uDE00"', '"\\x41"', '"\\', '"\t"', '"\x00"', '"\x7f"'),
    *('"\u202e\u2028\ufeff\uffff"', '"\U0010ffff"', '"e\u0301"', "'one'", "one", "//", "/**/1"),
    *('{"a": 1, "a": 2}', '{"": null}', '{"__proto__": 1}', '{"base64": "!"}', '{"base64": "eHh4"}', '{"npy": "eHh4"}'),
    *('{"base64": 1}', '{"npy": ""}', '[1, "a"]', "[true]", "[-1]", "[4294967296]", "[1e2]", "[[1], [2, [3]]]"),
    '["' + "x" * 3_000 + '"]',
    "[" + "1," * 3_000 + "1]",
    '["' + '","' * 300 + '"]',
)
"""Values in JSON, some of them invalid, which take the place of any part of a document."""

NAMES = ("", "text", "inputs", "input", "model", "\u0000", "a" * 200, "normalize", "prompt_name", "__class__", "\ud800")
DAMAGE = b'\x00\x01\t\n\r "#%&,.0:;=?[\\]{}\x7f\x80\xc0\xff'
"""Bytes that take the place of others."""


def damaged(choices: Choices, data: bytes) -> bytes:
    """Returns data with one fault: a byte replaced, added or removed, or a part removed, repeated or cut off."""
    at, byte, kind = choices.below(len(data) + 1), choices.pick(DAMAGE), choices.below(6)
    end = at + choices.below(16) + 1
    match kind:
        case 0:
            return data[:at] + bytes([byte]) + data[at + 1 :]
        case 1:
            return data[:at] + bytes([byte]) + data[at:]
        case 2:
            return data[:at] + data[at + 1 :]
        case 3:
            return data[:at] + data[end:]
        case 4:
            return data[:end] + data[at:]
        case _:
            return data[:at]


def make_body(choices: Choices, route: Route) -> bytes:
    """Returns a body of a route, which is valid in a third of the cases."""
    body, kind = choices.pick(route.bodies), choices.below(9)
    if route.media_type != JSON:
        return _mutated_bytes(choices, route, body, kind)
    if kind <= 2:
        return json.dumps(body).encode()
    if kind <= 5:
        return _with_value(choices, body)
    if kind == 6:
        return _with_name(choices, body)
    if kind == 7:
        return choices.pick(WHOLE)
    return damaged(choices, json.dumps(body, ensure_ascii=False).encode())


def _mutated_bytes(choices: Choices, route: Route, body: bytes, kind: int) -> bytes:
    if kind <= 2:
        return body
    if kind == 3:
        return choices.take(choices.below(40))
    if kind == 4 and route.media_type == NPY:
        return choices.pick(NPY_FILES)
    if kind == 4:
        return b"".join(b"%b\n" % choices.pick(VALUES).encode() for _ in range(1 + choices.below(3)))
    if kind == 5:
        return choices.pick(WHOLE)
    return damaged(choices, body)


def _with_value(choices: Choices, body: Any) -> bytes:  # noqa: ANN401 - a JSON document
    """Returns a document in which another value stands in the place of a part of it, or of the whole."""
    places = [(), *_places(body)]
    path, value = choices.pick(places), choices.pick(VALUES)
    if choices.one_in(16):
        depth = 1 + choices.below(MAX_NESTING)
        value = "[" * depth + value + "]" * depth
    return json.dumps(_replaced(body, path)).replace(f'"{_PLACE}"', value).encode("utf-8", "surrogatepass")


def _with_name(choices: Choices, body: Any) -> bytes:  # noqa: ANN401 - a JSON document
    """Returns a document without one of its fields, with another one, or with one of them twice."""
    names = list(body)
    fields = [(name, json.dumps(body[name])) for name in names]
    changed = choices.below(len(fields))
    match choices.below(3):
        case 0:
            del fields[changed]
        case 1:
            fields.append((choices.pick(NAMES), choices.pick(VALUES)))
        case _:
            fields.append((fields[changed][0], choices.pick(VALUES)))
    inner = ", ".join(f"{json.dumps(name)}: {value}" for name, value in fields)
    return f"{{{inner}}}".encode("utf-8", "surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 - a JSON value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (key,)
        yield from ((key, *rest) for rest in _places(item))


def _replaced(value: Any, path: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a JSON value
    """Returns a document with a mark in the place that a path leads to."""
    if not path:
        return _PLACE
    key, *rest = path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    pairs = [(each, _replaced(item, tuple(rest)) if each == key else item) for each, item in items]
    return dict(pairs) if isinstance(value, dict) else [item for _, item in pairs]


def _npy(descr: str, shape: str, version: bytes = b"\x01\x00", data: bytes = b"\x00" * 24) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode("latin-1")
    size = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return b"\x93NUMPY" + version + size + header + data


NPY_FILES = (
    _npy("'<f4'", "(2, 3)"),
    _npy("'<f4'", "(2, 3)", b"\x02\x00"),
    _npy("'<f4'", "(2, 3)", b"\x03\x00"),
    _npy("'<f4'", "(2, 3)", b"\x09\x00"),
    _npy("'|O'", "(2,)"),
    _npy("'<f4'", "(-1,)"),
    _npy("'<f4'", "(9223372036854775807,)"),
    _npy("'<f4'", "(4294967296, 4294967296)"),
    _npy("'<f4'", "()"),
    _npy("'<f4'", "(0,)"),
    _npy("'<f4'", "(" + "1," * 80 + ")"),
    _npy("'<U4'", "(1,)"),
    _npy("'<M8[ns]'", "(3,)"),
    _npy("[('a', '<f4'), ('a', '<i4')]", "(3,)"),
    _npy("[('a', '|O')]", "(3,)"),
    _npy("'<f4'", "(1,)" * 500),
    _npy("__import__('os')", "(1,)"),
    b"\x93NUMPY\x01\x00\xff\xff",
    b"\x93NUMPY",
)
"""Arrays with false headers."""

WHOLE = (
    *(b"", b" ", b"\n\n", b"null", b"1", b'""', b"{", b"}", b"[]", b"{}", b"{}{}", b'{"text": "a"}\x00', b"\x00"),
    b'\xef\xbb\xbf{"text": "one"}',
    '{"text": "one"}'.encode("utf-16"),
    b'{"text": "\xff\xfe"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "' + b"a" * 5_000 + b'"}',
    b'{"texts": [' + b'"a",' * 100 + b'"a"]}',
    b'{"inputs": ' + b"[" * 100_000,
    b'{"inputs": [' + b"1," * 40_000 + b"1]}",
    b'{"a": ' * 20_000,
    b"\x85\xa4text\xa3one",  # MessagePack, which no route takes
    b"text=one&texts=two",
    b'"\n"\n\n"one"\r\n',
    b'{"text": "one"}\n' * 200,
)
"""Whole bodies."""
