"""Parameters of requests: filters, keys, limits. Pure."""

from collections.abc import Iterable
from typing import Final

import orjson

from hifi.pipe.view import View, ViewType
from hifi.record.cloudevents.timestamps import parse_us
from hifi.runtime.http.parameters import whole_number
from hifi.runtime.http.problem import Problem
from hifi_view.store.events import Key, Value
from hifi_view.store.row_queries import Filter

LIMIT: Final = "limit"
AFTER: Final = "after"
AT_LEAST: Final = "at_least"
_OWN: Final = frozenset({LIMIT, AFTER, AT_LEAST})
_COMPARISONS: Final = {"": "=", "min": ">=", "max": "<="}
DEFAULT_LIMIT: Final = 1000
_MAX_FILTERS: Final = 50


def filters(view: View, parameters: Iterable[tuple[str, str]]) -> list[Filter]:
    """The conditions `FIELD=VALUE`, `FIELD.min=VALUE` and `FIELD.max=VALUE`.

    Raises:
        Problem: 400, there is no such field, or it has another type.
    """
    conditions = []
    for name, text in parameters:
        if name in _OWN:
            continue
        field, _, comparison = name.partition(".")
        if field not in view.columns or comparison not in _COMPARISONS:
            raise Problem(
                400,
                f"There is no parameter of this name. Fields are {', '.join(view.columns)}, also with .min and .max; "
                f"others are {', '.join(sorted(_OWN))}.",
            )
        conditions.append(Filter(field, _COMPARISONS[comparison], typed(field, text, view.type_of(field))))
    if len(conditions) > _MAX_FILTERS:
        raise Problem(400, f"A request has at most {_MAX_FILTERS} conditions.")
    return conditions


def key_filters(view: View, parameters: Iterable[tuple[str, str]]) -> list[Filter]:
    """Conditions of `filters` that hold for a row as long as it exists: on fields of the key.

    Raises:
        Problem: 400, as of `filters`, or a condition is on another field.
    """
    conditions = filters(view, parameters)
    if any(condition.field not in view.key for condition in conditions):
        raise Problem(
            400,
            f"Changes are filtered only by the fields of the key, {', '.join(view.key)}: of a row whose other fields "
            "fit no more nothing would be told.",
        )
    return conditions


def typed(field: str, text: str, kind: ViewType) -> Value:
    """A parameter as the type of its field.

    Raises:
        Problem: 400, it has another type.
    """
    try:
        if kind is ViewType.TEXT:
            text.encode()
            return text
        if kind is ViewType.BOOL:
            return {"true": 1, "false": 0}[text]
        if kind is ViewType.DOUBLE:
            return float(text)
        number = int(text) if text.isascii() and len(text) < 20 else None
        if number is not None and -(2**63) <= number < 2**63:
            return number
    except (ValueError, KeyError):
        pass
    raise Problem(400, f"The field {field} is {kind}; the parameter is not.")


def path_key(view: View, path: str) -> Key:
    """The key in a path: its values between slashes; a single value may have slashes.

    Raises:
        Problem: 400, the number of values is not the number of the key's fields.
    """
    key_texts = [path] if len(view.key) == 1 else path.split("/")
    if len(key_texts) != len(view.key):
        raise Problem(
            400, f"The key has the parts {'/'.join(view.key)}. Ask with filters for values with a slash."
        )
    return tuple(_key_part(view, name, key_text) for name, key_text in zip(view.key, key_texts, strict=True))


def after_key(view: View, text: str | None) -> Key | None:
    """The parameter `after`: `next` of an earlier answer, a JSON array.

    Raises:
        Problem: 400, it is no key of the view.
    """
    if text is None:
        return None
    try:
        key_values = orjson.loads(text)
    except orjson.JSONDecodeError:
        key_values = None
    if (
        not isinstance(key_values, list)
        or len(key_values) != len(view.key)
        or not all(isinstance(key_value, str | int) for key_value in key_values)
    ):
        raise Problem(400, f"{AFTER} is not what an answer of this view had as next.")
    return tuple(
        _key_part(view, name, str(key_value)) for name, key_value in zip(view.key, key_values, strict=True)
    )


def limit(text: str | None, max_limit: int) -> int:
    """The parameter `limit`.

    Raises:
        Problem: 400, it is no number from 1 to `max_limit`.
    """
    if text is None:
        return min(DEFAULT_LIMIT, max_limit)
    number = whole_number(text, max_limit)
    if not number:
        raise Problem(400, f"{LIMIT} must be a number from 1 to {max_limit}.")
    return number


def at_least(text: str | None) -> int | None:
    """The parameter `at_least`, microseconds since 1970 UTC; None: it is not given.

    Raises:
        Problem: 400, it is no time.
    """
    if text is None:
        return None
    try:
        return parse_us(text.encode())
    except (ValueError, OverflowError):
        raise Problem(400, f"{AT_LEAST} must be a time as 2026-11-27T12:00:00Z; write + as %2B.") from None


def _key_part(view: View, name: str, text: str) -> str | int:
    value = typed(name, text, view.type_of(name))
    assert isinstance(value, str | int)
    return value
