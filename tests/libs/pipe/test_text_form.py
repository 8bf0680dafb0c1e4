"""Texts of a pipe that a library would interpret are refused, wherever a pipe is read."""

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRecord
from hifi.pipe.text_form import TextForm, refuse_text

GOOD = {
    "pipe": "orders",
    "source": {"keys": [{"env": "ORDERS_KEY"}]},
    "destinations": [{"name": "shop", "url": "http://shop.example/orders"}],
}
REFUSED = [
    "a${env:HOME}",
    "${dir:/run/kafka:password}",
    "file:///etc/passwd",
    "FILE:x",
    "a\x00b",
    "a\r\nb",
    "a\u2028b",
    "a\x85b",
]


def _with(*path: str | int, value: Any) -> dict[str, Any]:
    declared: Any = copy.deepcopy(GOOD)
    node = declared
    for step in path[:-1]:
        node = node.setdefault(step, {}) if isinstance(node, dict) else node[step]
    node[path[-1]] = value
    return declared  # type: ignore[no-any-return]


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.parametrize(
    "path",
    [
        ("source", "type"),
        ("source", "id"),
        ("source", "keys", 0, "env"),
        ("destinations", 0, "headers", "x-a"),
    ],
)
def test_a_text_that_a_library_would_interpret_is_refused(path: tuple[str | int, ...], text: str) -> None:
    declared = _with(*path, value=text)
    with pytest.raises(ValidationError):
        Pipe.model_validate(declared)
    with pytest.raises(ValidationError):  # as a service reads it
        PipeRecord.model_validate({"pipe": declared})


@pytest.mark.parametrize(
    ("text_form", "text", "allowed"),
    [
        (TextForm.LINE, "profile:x", True),
        (TextForm.LINE, "com.acme.order.created", True),
        (TextForm.LINE, "$5 {x}", True),
        (TextForm.LINE, "a\nb", False),
        (TextForm.SQL, "a +\n\tb", True),
        (TextForm.SQL, "concat('file:', x)", True),
        (TextForm.SQL, "'${env:HOME}'", False),
        (TextForm.SQL, "a\x00", False),
        (TextForm.LINES, "${x}\n", True),
        (TextForm.LINES, "\x1b[2J", False),
        (TextForm.DATA, "${x}\x00", True),
    ],
)
def test_the_form_of_a_field_decides_what_its_text_may_hold(
    text_form: TextForm, text: str, allowed: bool
) -> None:
    assert (refuse_text(text, text_form) is None) == allowed
