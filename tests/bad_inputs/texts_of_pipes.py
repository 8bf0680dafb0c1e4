"""Texts of pipes that manage refuses, as `hifi check` does."""

import copy
from collections.abc import Iterator
from typing import Any, Final

import orjson

PIPE: Final[dict[str, Any]] = {
    "pipe": "orders",
    "source": {
        "keys": [{"env": "K"}],
        "id": "id",
        "quota": {"events": 10},
        "mask": {"data": {"mail": "drop"}},
    },
    "normalize": {"mask": {"name": "drop"}},
    "enrich": {"fields": {"id": "int"}, "derive": {"late": "id > 1"}, "filter": "id > 0"},
    "destinations": [
        {
            "name": "shop",
            "url": "https://example.com/",
            "when": "late",
            "timeout": 10,
            "concurrency": 4,
            "retry": {"max_age": 3600},
        }
    ],
    "slo": {"p95": 1, "loss": 0},
}
_RAW: Final = {
    "empty": b"",
    "a list": b"- a",
    "a text": b"orders",
    "not UTF-8": b"pipe: \xff",
    "control character": b"pipe: \x1b[2J",
    "null byte": b"pipe: a\x00",
    "tab as indentation": b"pipe: a\nsource:\n\tkeys: 1",
    "a key twice": b"pipe: a\npipe: b",
    "unknown tag": b"pipe: !x a",
    "bad boolean": b"pipe: !!bool x",
    "bad date": b"pipe: 2026-99-99",
    "alias": b"pipe: &a a\nsource: *a",
    "unclosed bracket": b"source: {keys: [",
    "unclosed quote": b"pipe: 'a",
    "nested too deeply": b"a: " + b"[" * 70 + b"]" * 70,
    "more than 10,000 values": b"pipe: a\nx: [" + b"1," * 20_000 + b"1]",
    "more than 256 KiB": b"#" * 300_000,
    "two documents": b"pipe: a\n---\npipe: b",
    "merge of a number": b"<<: 1",
    "number of 5,000 digits": b"pipe: " + b"9" * 5000,
    "only a comment": b"# nothing",
    "bad base64": b"pipe: !!binary '*'",
}
_ALLOWED: Final = (
    ("source.id", None),
    ("source.quota.events", 1.5),
    ("enrich.derive.late", ""),  # Spark judges it
    ("enrich.filter", None),
    ("destinations[0].when", None),
    ("destinations[0].timeout", 1.5),
    ("destinations[0].retry.max_age", 1.5),
    ("slo.p95", 1.5),
)
"""Values below that a field accepts."""
_WRONG_VALUES: Final[tuple[Any, ...]] = (None, "", -1, 1.5, True, [], {}, "\x01", ["x"], {"x": 1})


def bad_texts() -> Iterator[tuple[str, bytes]]:
    """Name and text of all of them; each has one fault."""
    yield from _RAW.items()
    for path, _ in _leaves(PIPE, ()):
        for wrong_value in _WRONG_VALUES:
            if (_path_text(path), wrong_value) in _ALLOWED and not isinstance(wrong_value, bool):
                continue
            yield f"{_path_text(path)}: {orjson.dumps(wrong_value).decode()}", _changed(path, wrong_value)
    for path in (
        ("x",),
        ("source", "x"),
        ("normalize", "x"),
        ("enrich", "x"),
        ("destinations", 0, "x"),
        ("slo", "x"),
    ):
        yield f"unknown key {_path_text(path)}", _changed(path, 1)
    for path in (("pipe",), ("source",), ("destinations",), ("destinations", 0, "name")):
        yield f"without {_path_text(path)}", _changed(path, ...)
    for path, value in (
        (("pipe",), "Orders"),
        (("pipe",), "x" * 64),
        (("pipe",), "a b"),
        (("source", "keys"), []),
        (("source", "keys"), [{"env": "HIFI_X"}]),
        (("source", "keys"), [{"env": "A", "file": "/b"}]),
        (("source", "keys"), [{"sha256": "x"}]),
        (("source", "id"), "a..b"),
        (("source", "quota"), {"events": 0}),
        (("normalize",), {"schema": "file.json"}),
        (("normalize",), {"schema": {"type": 7}}),
        (("normalize",), {"schema": {"$ref": "http://169.254.169.254/"}}),
        (("normalize",), {"function": "subprocess:call"}),
        (("destinations", 0, "url"), "ftp://example.com/"),
        (("destinations", 0, "url"), "http://user:password@example.com/"),
        (("destinations", 0, "url"), "http://169.254.169.254/"),
        (("destinations", 0, "url"), "http://10.0.0.1/"),
        (("destinations", 0, "url"), "not a URL"),
        (("destinations", 0, "kind"), "carrier-pigeon"),
        (("destinations", 0, "timeout"), 0),
        (("destinations", 0, "timeout"), 1e9),
        (("destinations", 0, "concurrency"), 0),
        (("slo", "p95"), 0),
    ):
        yield f"{_path_text(path)}: {orjson.dumps(value).decode()[:60]}", _changed(path, value)


def _leaves(node: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in children:
        if isinstance(value, dict | list):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _changed(path: tuple[Any, ...], value: Any) -> bytes:
    pipe = copy.deepcopy(PIPE)
    node: Any = pipe
    for step in path[:-1]:
        node = node[step]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return orjson.dumps(pipe, option=orjson.OPT_INDENT_2)


def _path_text(path: tuple[Any, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
