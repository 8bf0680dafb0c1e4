"""How much work a JSON Schema is for an event, before it is done. Pure.

A schema is input. Thirty subschemas that each refer twice to the next one are a billion evaluations, and a schema that
refers twice to itself doubles with each level of the data. So evaluations are counted first, each subschema once for
each value: exactly for an event that could exceed the bound, else by what its size allows.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from hifi.runtime.errors import Misconfigured, Rejected

MOST_EVALUATIONS: Final = 20_000_000
"""Of subschemas for one event; a second or two."""
_MOST_STEPS: Final = 2_000_000
"""Of the exact count; about as long."""
_LEVELS: Final = 17
"""Levels of data for which a schema is counted in advance; what grows until there grows on."""
_STATES: Final = 16
"""States of a pattern that take as long for a character as an evaluation."""
_IN_PLACE: Final = (
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
)
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_NOTHING: Final = (0.0, 0.0)
_MAPS: Final = frozenset({"patternProperties", "dependentSchemas", "dependencies"})
_REPETITION: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_Cost = tuple[float, float]
"""Evaluations for a value, and for each character of it."""


@dataclass(slots=True, eq=False, repr=False)
class _Subschema:
    """The subschemas that a subschema applies to the same value, and to the values in it."""

    own_cost: _Cost = (1.0, 0.0)
    in_place: "list[_Subschema]" = field(default_factory=list)
    properties: "dict[str, _Subschema]" = field(default_factory=dict)
    members: "list[_Subschema]" = field(default_factory=list)
    """For members with any name."""
    names: "list[_Subschema]" = field(default_factory=list)
    first_items: "list[_Subschema]" = field(default_factory=list)
    items: "list[_Subschema]" = field(default_factory=list)

    @property
    def branches(self) -> bool:
        """Whether it applies any."""
        return any((self.in_place, self.properties, self.members, self.names, self.first_items, self.items))


class SchemaCost:
    """Refuses events whose validation would take too long.

    Args:
        schema: a valid JSON Schema.

    Raises:
        Misconfigured: it takes too long for any event, or has no end.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        try:
            reader = _SchemaReader(schema)
        except RecursionError:
            raise Misconfigured("the JSON Schema is nested too deeply") from None
        self._root = reader.read()
        evaluations, per_character = zip(*_costs_by_level(self._root, reader.subschemas()), strict=True)
        self._per_value, self._per_character = max(evaluations), max(per_character)
        if len(evaluations) == _LEVELS and evaluations[-1] > evaluations[_LEVELS // 2]:
            self._per_value = math.inf  # each event is counted exactly
        if evaluations[0] > MOST_EVALUATIONS:
            raise Misconfigured(
                f"the JSON Schema takes {evaluations[0]:,.0f} evaluations of subschemas for any event; "
                f"{MOST_EVALUATIONS:,} are allowed: refer to fewer subschemas in each of them"
            )

    def check(self, data: bytes, instance: Any) -> None:
        """Refuse an event that takes too long.

        Args:
            data: of the event.
            instance: the same, decoded.

        Raises:
            Rejected: it does.
        """
        most_values = len(data) / 2 + 1
        if most_values * self._per_value + len(data) * self._per_character <= MOST_EVALUATIONS:
            return
        try:
            is_bounded = _EventCount().of(self._root, instance) <= MOST_EVALUATIONS
        except (_TooManySteps, RecursionError):
            is_bounded = False
        if not is_bounded:
            raise Rejected("schema", f"it takes more than {MOST_EVALUATIONS:,} evaluations of subschemas")


class _SchemaReader:
    """Reads subschemas, and finds those to which others refer."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._true = _Subschema()
        self._known: dict[int, _Subschema] = {}
        self._unread: list[tuple[_Subschema, dict[str, Any], str]] = []
        self._resources: dict[str, Any] = {"": schema}
        self._anchors: dict[str, list[tuple[Any, str]]] = {}
        self._note_names(schema, "")

    def read(self) -> _Subschema:
        """The whole schema. A loop, since there may be more references than Python has stack."""
        root = self._named(self._resources[""], "")
        while self._unread:
            self._complete(*self._unread.pop())
        return root

    def subschemas(self) -> Iterator[_Subschema]:
        """All subschemas that were read."""
        yield self._true
        yield from self._known.values()

    def _named(self, schema: Any, base: str) -> _Subschema:
        """A subschema, which is read later, once; `base`: the URL of the resource that it is in."""
        if not isinstance(schema, dict):
            return self._true
        subschema = self._known.get(id(schema))
        if subschema is None:
            subschema = self._known[id(schema)] = _Subschema(_own_cost(schema))
            self._unread.append((subschema, schema, _url(base, schema)))
        return subschema

    def _complete(self, subschema: _Subschema, schema: dict[str, Any], base: str) -> None:
        def read_all(*keywords: str) -> Iterator[_Subschema]:
            for keyword in keywords:
                yield from (self._named(value, base) for value in _subschemas(keyword, schema.get(keyword)))

        targets = [target for name in _REFERENCES for target in self._targets(schema.get(name), base)]
        subschema.in_place = [*read_all(*_IN_PLACE), *(self._named(*target) for target in targets)]
        properties = schema.get("properties")
        if isinstance(properties, dict):
            subschema.properties = {name: self._named(value, base) for name, value in properties.items()}
        subschema.members = list(
            read_all("patternProperties", "additionalProperties", "unevaluatedProperties")
        )
        subschema.names = list(read_all("propertyNames"))
        is_list = isinstance(schema.get("items"), list)
        subschema.first_items = list(read_all("prefixItems", *(["items"] if is_list else [])))
        subschema.items = list(
            read_all("contains", "additionalItems", "unevaluatedItems", *([] if is_list else ["items"]))
        )

    def _note_names(self, node: Any, base: str) -> None:
        if isinstance(node, dict):
            base = _url(base, node)
            self._resources.setdefault(base, node)
            for name in ("$anchor", "$dynamicAnchor"):
                if isinstance(node.get(name), str):
                    self._anchors.setdefault(node[name], []).append((node, base))
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            self._note_names(child, base)

    def _targets(self, reference: Any, base: str) -> list[tuple[Any, str]]:
        """The subschemas that a reference may mean, and the URLs that they are in; none for well-known schemas."""
        if not isinstance(reference, str):
            return []
        try:
            return self._find(reference, base)
        except ValueError:  # it is no URL, or has too long a number: the validator does not follow it
            return []

    def _find(self, reference: str, base: str) -> list[tuple[Any, str]]:
        url, fragment = urldefrag(reference if not reference.startswith("#") else base + reference)
        url = urljoin(base, url) or base
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(unquote(fragment), [])
        node = self._resources.get(url)
        for segment in fragment.split("/")[1:]:
            key = unquote(segment).replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict):
                node = node.get(key)
            else:
                node = (
                    node[int(key)]
                    if isinstance(node, list) and key.isdecimal() and int(key) < len(node)
                    else None
                )
        return [(node, url)]


def _url(base_url: str, schema: dict[str, Any]) -> str:
    """The URL of a schema; `base_url` if it has none, or what stands there is none, as it may in an example."""
    identifier = schema.get("$id")
    try:
        return urldefrag(urljoin(base_url, identifier))[0] if isinstance(identifier, str) else base_url
    except ValueError:
        return base_url


def _subschemas(keyword: str, value: Any) -> Iterable[Any]:
    """The subschemas of a keyword: itself, those of a list, or those of a map of names."""
    if keyword in _MAPS:
        return value.values() if isinstance(value, dict) else ()
    return value if isinstance(value, list) else () if value is None else [value]


def _own_cost(schema: dict[str, Any]) -> _Cost:
    choices = schema.get("enum")
    patterns = [schema.get("pattern"), *(schema.get("patternProperties") or ())]
    states = sum(_states(pattern) for pattern in patterns if isinstance(pattern, str))
    return 1 + (len(choices) if isinstance(choices, list) else 0) / 10, states / _STATES


def _states(pattern: str) -> float:
    """About the states of a pattern: its characters, those of a repetition `{m,n}` n times."""
    group_counts, last_count, position = [0.0], 0.0, 0
    while position < len(pattern):
        character = pattern[position]
        repetition = _REPETITION.match(pattern, position)
        if repetition is not None:
            times = int(repetition[2] or repetition[1])
            group_counts[-1] += last_count * max(times - 1, 0)
            last_count *= max(times, 1)
            position = repetition.end()
            continue
        if character == "(":
            group_counts.append(0.0)
        elif character not in "*+?|":
            last_count = 1.0
            if character == ")" and len(group_counts) > 1:
                last_count = group_counts.pop()
            elif character == "[":
                position = max(pattern.find("]", position + 2), position)
            elif character == "\\":
                position += 1
            group_counts[-1] += last_count
        position += 1
    return sum(group_counts)


def _costs_by_level(root: _Subschema, subschemas: Iterable[_Subschema]) -> list[_Cost]:
    """The most evaluations for one value that is 0, 1, 2 … levels below the value of the whole schema.

    Raises:
        Misconfigured: there is no end of them.
    """
    ordered_subschemas = _in_order(subschemas)
    branching_subschemas = [subschema for subschema in ordered_subschemas if subschema.branches]
    costs = {subschema: subschema.own_cost for subschema in ordered_subschemas}
    _add_in_place(branching_subschemas, costs)
    costs_by_level = [costs[root]]
    costs_below = dict.fromkeys(ordered_subschemas, _NOTHING)
    while len(costs_by_level) < _LEVELS:
        costs_above, costs = costs, dict(costs_below)
        for subschema in branching_subschemas:
            costs[subschema] = _below(subschema, costs_above)
        _add_in_place(branching_subschemas, costs)
        costs_by_level.append(costs[root])
        if costs == costs_above:
            break
    return costs_by_level


def _add_in_place(ordered_subschemas: Iterable[_Subschema], costs: dict[_Subschema, _Cost]) -> None:
    """Add the costs of what each subschema applies to the same value."""
    for subschema in ordered_subschemas:
        if subschema.in_place:
            evaluations, per_character = costs[subschema]
            for part in subschema.in_place:
                part_evaluations, part_per_character = costs[part]
                evaluations += part_evaluations
                per_character += part_per_character
            costs[subschema] = evaluations, per_character


def _below(subschema: _Subschema, costs: Mapping[_Subschema, _Cost]) -> _Cost:
    """The most evaluations for a member or item, of what is applied to it."""
    member, item = (
        _most_of_one(one_of, all_of, costs)
        for one_of, all_of in (
            (subschema.properties.values(), (*subschema.members, *subschema.names)),
            (subschema.first_items, subschema.items),
        )
    )
    return max(member[0], item[0]), max(member[1], item[1])


def _most_of_one(
    one_of: Iterable[_Subschema], all_of: Iterable[_Subschema], costs: Mapping[_Subschema, _Cost]
) -> _Cost:
    """The costs of all of some subschemas and of the most costly one of others."""
    most_evaluations = most_per_character = 0.0
    for part in one_of:
        evaluations, per_character = costs[part]
        most_evaluations = max(most_evaluations, evaluations)
        most_per_character = max(most_per_character, per_character)
    for part in all_of:
        evaluations, per_character = costs[part]
        most_evaluations += evaluations
        most_per_character += per_character
    return most_evaluations, most_per_character


def _in_order(subschemas: Iterable[_Subschema]) -> list[_Subschema]:
    """Subschemas, each behind those that it applies to the same value.

    Raises:
        Misconfigured: there is no such order.
    """
    ordered: dict[_Subschema, None] = {}
    visited: set[_Subschema] = set()
    for start in subschemas:
        stack = [] if start in ordered else [(start, iter(start.in_place))]
        visited.add(start)
        while stack:
            subschema, parts = stack[-1]
            part = next((part for part in parts if part not in ordered), None)
            if part is None:
                ordered[subschema] = None
                stack.pop()
            elif part in visited:
                raise Misconfigured(
                    "a part of the JSON Schema refers to itself for the same value, which has no end"
                )
            else:
                visited.add(part)
                stack.append((part, iter(part.in_place)))
    return list(ordered)


class _TooManySteps(Exception):
    """The count takes too long itself."""


class _EventCount:
    """Counts evaluations for an event."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int, bool], float] = {}
        self._steps = 0

    def of(self, subschema: _Subschema, value: Any) -> float:
        """Evaluations of a subschema, and of all that it applies, for a value. Texts of the same length are alike."""
        is_container = isinstance(value, dict | list)
        length = len(value) if isinstance(value, str) else 0
        key = id(subschema), id(value) if is_container else length, is_container
        if (cached_count := self._counts.get(key)) is not None:
            return cached_count
        self._steps += 1 + (len(value) if is_container else 0)
        if self._steps > _MOST_STEPS:
            raise _TooManySteps
        evaluations, per_character = subschema.own_cost
        count = evaluations + per_character * length
        if isinstance(value, dict):
            for name, member in value.items():
                count += per_character * len(name) + sum(self.of(part, name) for part in subschema.names)
                parts = subschema.members
                if (part := subschema.properties.get(name)) is not None:
                    parts = [*parts, part]
                count += sum(self.of(part, member) for part in parts)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                parts = [*subschema.items, *subschema.first_items[index : index + 1]]
                count += sum(self.of(part, item) for part in parts)
        count += sum(self.of(part, value) for part in subschema.in_place)
        self._counts[key] = count
        return count
