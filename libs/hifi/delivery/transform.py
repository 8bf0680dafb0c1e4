"""JMESPath transforms with bounds: an expression or event that would take too long or grow too large is refused.

Needs the package `jmespath` (`hifi-libs[destinations]`).
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import jmespath
import jmespath.exceptions
import jmespath.functions
import jmespath.visitor

from hifi.runtime import exact_json
from hifi.runtime.errors import Misconfigured, Rejected

MAX_EXPRESSION: Final = 8192
"""Longest expression, characters."""
MAX_DATA_BYTES: Final = 2 * 1024 * 1024
"""Largest data that is transformed, and largest result, bytes."""
MAX_STEPS: Final = 200_000
"""Steps of the evaluation for one event; some tenths of a second."""
MAX_ITEMS: Final = 200_000
"""Items of a list and values of a result."""
MAX_FUNCTION_VALUES: Final = 10 * MAX_ITEMS
"""Values that functions and comparisons read for one event; a long text counts once for each `_CHARACTERS`."""
_CHARACTERS: Final = 1000
_LONG_LIST: Final = f"a list has more than {MAX_ITEMS:,} items"
_LONG_TEXT: Final = f"a text has more than {MAX_DATA_BYTES:,} characters"
_FAILED: Final = "transform-failed"

Transform: TypeAlias = Callable[[bytes], bytes]


class _TooLarge(Exception):
    """The evaluation exceeds a bound."""


class _ExactFunctions(jmespath.functions.Functions):
    """JMESPath's functions, where those from and to text keep the digits of numbers, and no truth value is a number."""

    @jmespath.functions.signature({"types": ["array", "string"]}, {"types": []})
    def _func_contains(self, subject: list[Any] | str, search: Any) -> bool:
        if isinstance(subject, str):
            return search in subject
        return any(exact_json.is_same(element, search) for element in subject)

    @jmespath.functions.signature({"types": ["string"]}, {"types": ["array-string"]})
    def _func_join(self, separator: str, texts: list[str]) -> str:
        if sum(map(len, texts)) + len(separator) * len(texts) > MAX_DATA_BYTES:
            raise _TooLarge(_LONG_TEXT)
        return separator.join(texts)

    @jmespath.functions.signature({"types": []})
    def _func_to_string(self, value: Any) -> str:
        return value if isinstance(value, str) else exact_json.dumps(value).decode()

    @jmespath.functions.signature({"types": []})
    def _func_to_number(self, value: Any) -> Any:
        if isinstance(value, str):
            try:
                value = exact_json.loads_floats(value)
            except ValueError:
                return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if is_number else None


_FUNCTIONS: Final = _ExactFunctions()
_EQUALITY: Final = frozenset({"eq", "ne"})
_OPTIONS: Final = jmespath.Options(custom_functions=_FUNCTIONS)


class _BoundedInterpreter(jmespath.visitor.TreeInterpreter):
    """Evaluates one expression on one value, within the bounds."""

    def __init__(self) -> None:
        super().__init__(_OPTIONS)
        self._remaining_steps = MAX_STEPS
        self._remaining_values = MAX_FUNCTION_VALUES

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        """Evaluate a node of the expression."""
        self._remaining_steps -= 1
        if self._remaining_steps < 0:
            raise _TooLarge(f"it takes more than {MAX_STEPS:,} steps")
        value = super().visit(node, *args, **kwargs)
        if isinstance(value, list) and len(value) > MAX_ITEMS:
            raise _TooLarge(_LONG_LIST)
        if isinstance(value, str) and len(value) > MAX_DATA_BYTES:
            raise _TooLarge(_LONG_TEXT)
        return value

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        """Call a function, whose arguments may be the same object many times."""
        arguments = [self._readable(self.visit(child, value)) for child in node["children"]]
        return _FUNCTIONS.call_function(node["value"], arguments)

    def visit_flatten(self, node: Any, value: Any) -> Any:
        """Join the lists in a list."""
        lists = self.visit(node["children"][0], value)
        if isinstance(lists, list):
            item_count = sum(len(element) if isinstance(element, list) else 1 for element in lists)
            if item_count > MAX_ITEMS:
                raise _TooLarge(_LONG_LIST)
        return super().visit_flatten(_with_values(node, [lists]), value)

    def visit_comparator(self, node: Any, value: Any) -> Any:
        """Compare two values, which may be the same object many times."""
        operands = [self._readable(self.visit(child, value)) for child in node["children"]]
        if node["value"] in _EQUALITY:
            return exact_json.is_same(*operands) is (node["value"] == "eq")
        return super().visit_comparator(_with_values(node, operands), value)

    def _readable(self, value: Any) -> Any:
        """The value, if what reads it stays within the bounds."""
        self._remaining_values -= _require_bounded("a value", value)
        if self._remaining_values < 0:
            raise _TooLarge(f"its functions and comparisons read more than {MAX_FUNCTION_VALUES:,} values")
        return value


def _with_values(node: Any, values: list[Any]) -> Any:
    """The node with values that are known in place of its children."""
    return {**node, "children": [{"type": "literal", "value": value, "children": []} for value in values]}


def compile_transform(expression: str) -> Transform:
    """Compile a JMESPath expression to a function from data to data.

    The function raises `Rejected` with the reason `transform-failed` where an event has no result or exceeds a bound.

    Raises:
        Misconfigured: it is not JMESPath, or too long or too deep.
    """
    syntax_tree = _parse(expression)

    def transform(data: bytes) -> bytes:
        if len(data) > MAX_DATA_BYTES:
            raise Rejected(_FAILED, f"the data is larger than {MAX_DATA_BYTES:,} bytes")
        try:
            value = exact_json.loads_floats(data)
        except ValueError:
            raise Rejected(_FAILED, "the data is not JSON") from None
        try:
            result = _BoundedInterpreter().visit(syntax_tree, value)
            _require_bounded("the result", result)
            has_non_finite = exact_json.has_non_finite(result)
        except _TooLarge as error:
            raise Rejected(_FAILED, f"the transform is refused for this event: {error}") from None
        except (
            jmespath.exceptions.JMESPathError,
            TypeError,
            ValueError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise Rejected(_FAILED, f"the transform fails: {type(error).__name__}") from None
        if result is None:
            raise Rejected(_FAILED, "the transform returns null")
        if has_non_finite:
            raise Rejected(_FAILED, "the result of the transform is infinite or no number, which is not JSON")
        try:
            return exact_json.dumps(result)
        except (TypeError, ValueError, RecursionError) as error:
            raise Rejected(_FAILED, f"the result of the transform is not JSON: {error}") from None

    return transform


def _parse(expression: str) -> Any:
    """The syntax tree of an expression. Raises `Misconfigured`."""
    if len(expression) > MAX_EXPRESSION:
        raise Misconfigured(
            f"the transform has {len(expression):,} characters; at most {MAX_EXPRESSION:,} are allowed"
        )
    try:
        return jmespath.compile(expression).parsed
    except (
        jmespath.exceptions.JMESPathError,
        ValueError,
    ) as error:  # ValueError: an index of too many digits
        raise Misconfigured(f"the transform {expression!r} is not JMESPath: {error}") from None
    except RecursionError:
        raise Misconfigured("the transform is nested too deeply") from None


def _require_bounded(subject: str, whole_value: Any) -> int:
    """Refuse a value that would be too large as JSON: parts of it may be the same object many times.

    Args:
        subject: what it is.
        whole_value: to be counted.

    Returns:
        The number of its values; a long text counts once for each `_CHARACTERS`.
    """
    value_count, characters, stack = 0, 0, [whole_value]
    while stack:
        value = stack.pop()
        value_count += 1
        if isinstance(value, dict):
            characters += sum(map(len, value))
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
        elif isinstance(value, str):
            characters += len(value)
        if value_count > MAX_ITEMS or len(stack) > MAX_ITEMS:
            raise _TooLarge(f"{subject} has more than {MAX_ITEMS:,} values")
        if characters > MAX_DATA_BYTES:
            raise _TooLarge(f"{subject} has more than {MAX_DATA_BYTES:,} characters")
    return value_count + characters // _CHARACTERS
