"""A pipe's `enrich` and routing as Spark SQL text. Pure: no Spark here.

The user's SQL is never rewritten. Every declared field is bound to its own name as a lambda variable around it, so
Spark's own scoping decides what a name means: backticks, shadowing and nested access work as in any Spark SQL.
Each text is one expression over the columns of `Column`.
"""

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from hifi.pipe.model import DerivedField, Enrich, Lookup, Pipe, SqlType
from hifi_enrich.lookup.key import table_id, text_of, typed

TEXT: Final = "`hifi.text`"
"""string: the event's data."""
FIELDS: Final = "`hifi.fields`"
"""array<string>: the declared fields as text, in declared order; null when the data is not a JSON object."""
ROWS: Final = "`hifi.rows`"
"""array<array<array<string>>>: by wave and place, the fields of the row that a lookup found, as text."""
RETURNED: Final = "`hifi.returned`"
"""string: what the UDF returned, as a JSON object; or `!` and why it failed."""
INPUT: Final = (
    "`hifi.text` string, `hifi.fields` array<string>, `hifi.rows` array<array<array<string>>>, "
    "`hifi.returned` string"
)
"""The columns that every text may use, in the order in which a row gives them. Dots keep them apart from fields."""

TIME_FORMATS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
}
"""As normalize writes times: RFC 3339 with microseconds."""
Failed: TypeAlias = Callable[[str], str]
"""From the SQL of a failure to the SQL of what is given instead of the body."""
_NONCE: Final = f"end{secrets.token_hex(12)}"
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Texts:
    """What is evaluated for an event of one pipe, in this order."""

    fields: str | None
    """What `FIELDS` says: array<string>. None: the pipe does not look into the data."""
    keys: tuple[str, ...]
    """For each wave of lookups: array<struct<table string, key string>>."""
    args: str | None
    """The UDF's arguments as a JSON object, null when the event fails before: string."""
    typed_args: str | None
    """The same as a struct; it only tells their types."""
    result: str
    """struct<patch string, to string, failure string>: JSON object of added fields (null: none), destinations
    with commas, `reason: detail` (null: none)."""

    def all(self) -> tuple[str, ...]:
        """All texts that there are."""
        one = [text for text in (self.args, self.typed_args) if text]
        return (*([self.fields] if self.fields else []), *self.keys, *one, self.result)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the row of a lookup is found."""

    wave: int
    index: int

    def sql(self) -> str:
        """The row's text."""
        return f"{ROWS}[{self.wave}][{self.index}]"


def write(pipe: Pipe) -> Texts:
    """The texts of a pipe.

    Raises:
        ValueError: the default of a lookup's field is not of its type.
    """
    enrich = pipe.enrich
    waves = lookup_waves(enrich)
    places = {
        name: Place(wave, index) for wave, names in enumerate(waves) for index, name in enumerate(names)
    }
    keys = tuple(_keys(enrich, places, names) for names in waves)
    args = typed_args = None
    if enrich.udf:
        passed = {name: f"`{name}`" for name in enrich.udf.args}
        args = _guarded(enrich, places, lambda _: "null", _json(passed))
        typed_args = _guarded(enrich, places, lambda _: "null", _struct(passed))
    wanted = _wanted(pipe)
    added = {name: f"`{name}`" for name in _added_in_order(enrich)}
    patch = _json(added) if added else "cast(null as string)"
    done = f"named_struct('patch', {patch}, 'to', {wanted}, 'failure', cast(null as string))"
    if enrich.udf:
        done = _after_udf(enrich, done)
    return Texts(_fields(enrich), keys, args, typed_args, _guarded(enrich, places, _failed, done))


def lookup_waves(enrich: Enrich) -> list[list[str]]:
    """Names of lookups in waves: those of a wave need fields of earlier waves only."""
    waves: list[list[str]] = []
    wave_of: dict[str, int] = {}
    for name, lookup in enrich.lookups.items():
        wave = max((wave_of[field] + 1 for field in lookup.key if field in wave_of), default=0)
        wave_of |= dict.fromkeys(lookup.fields, wave)
        while len(waves) <= wave:
            waves.append([])
        waves[wave].append(name)
    return waves


def derived_sql(derived: str | DerivedField) -> str:
    """The user's text of a derived field."""
    return derived if isinstance(derived, str) else derived.sql


def user_texts(pipe: Pipe) -> list[tuple[str, str]]:
    """Every SQL text that the user wrote, with its path in the pipe, in the order of evaluation."""
    texts = [(f"enrich.derive.{name}", derived_sql(derived)) for name, derived in pipe.enrich.derive.items()]
    if pipe.enrich.filter:
        texts.append(("enrich.filter", pipe.enrich.filter))
    texts += [
        (f"destinations[{index}].when", one.when) for index, one in enumerate(pipe.destinations) if one.when
    ]
    return texts


def failing(failure: str) -> str:
    """A `result` that turns every event into a dead letter; `failure` is `reason: detail`."""
    return _failed(literal(failure))


def columns(enrich: Enrich) -> dict[str, str]:
    """Name to SQL type of the fields that a derived expression can name: declared ones and lookups'."""
    typed = {name: kind.value for name, kind in enrich.fields.items()}
    for lookup in enrich.lookups.values():
        typed |= {
            name: lookup.types.get(column, SqlType.STRING).value for name, column in lookup.fields.items()
        }
    return typed


def let(name: str, value: str, body: str) -> str:
    """Evaluate `value` once and call it `name` in `body`. The line break ends a comment in the user's text.

    An aggregation of nothing: it starts with the value and finishes with the body. `transform` would do as well, but
    the type of its array depends on whether an element can be null, so Spark would go twice through every level of
    nesting, 2^n times in all.
    """
    return f"aggregate(array(), ({value}\n), (`hifi all`, `hifi one`) -> `hifi all`, `{name}` -> {body})"


def literal(text: str) -> str:
    """A string literal, whatever is in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _fields(enrich: Enrich) -> str | None:
    if not enrich.fields and not enrich.added():
        return None
    schema = ", ".join(f"`{name}` string" for name in enrich.fields)
    values = ", ".join(f"`hifi data`.`{name}`" for name in enrich.fields)
    array = let("hifi data", f"from_json({TEXT}, '{schema}')", f"array({values})") if values else "array('')"
    valid = f"is_valid_utf8({TEXT}) and startswith(ltrim(' \\t\\r\\n', {TEXT}), '{{')"
    # Spark's JSON parsers stop after the first value. With an element behind the data that nobody can guess, text that
    # goes on after its object is found out, since that element is then not the second one, or nothing parses.
    wrapped = f"concat('[', {TEXT}, ',{{\"{_NONCE}\":1}}]')"
    whole = f"try_variant_get(try_parse_json({wrapped}), '$[1].{_NONCE}', 'bigint') = 1"
    return f"case when {valid} and {whole} then {array} end"


def _keys(enrich: Enrich, places: Mapping[str, Place], names: Iterable[str]) -> str:
    structs = []
    for name in names:
        lookup = enrich.lookups[name]
        parts = [
            _key_part(field, lookup.types.get(column, SqlType.STRING)) for field, column in lookup.key.items()
        ]
        if len(parts) > 1:
            parts = [f"concat(length({part}), ':', {part})" for part in parts]
        structs.append(f"named_struct('table', '{table_id(lookup)}', 'key', concat({', '.join(parts)}))")
    body = f"array({', '.join(structs)})"
    before = {
        name: place for name, place in places.items() if place.wave < min(places[one].wave for one in names)
    }
    return _bind(enrich, before, body)


def _key_part(field: str, kind: SqlType) -> str:
    """The event's side of a key as text; `hifi_enrich.lookup.key.part` is the table's side."""
    cast = f"cast(`{field}` as {kind.value})"
    return f"cast(unix_micros({cast}) as string)" if kind is SqlType.TIMESTAMP else f"cast({cast} as string)"


def _bind(enrich: Enrich, places: Mapping[str, Place], body: str) -> str:
    """Bind declared fields and lookups' fields, as far as the body or a later binding names them."""
    bindings = [
        (name, f"cast({FIELDS}[{index}] as {kind.value})")
        for index, (name, kind) in enumerate(enrich.fields.items())
    ]
    for name, place in places.items():
        lookup = enrich.lookups[name]
        bindings += [
            (field, _looked_up(lookup, field, index, place)) for index, field in enumerate(lookup.fields)
        ]
    return _bind_used(bindings, body)


def _bind_used(bindings: list[tuple[str, str]], body: str) -> str:
    words = set(_WORD.findall(body))
    for name, value in reversed(bindings):
        if words.issuperset(_WORD.findall(name)):
            words.update(_WORD.findall(value))
            body = let(name, value, body)
    return body


def _looked_up(lookup: Lookup, field: str, index: int, place: Place) -> str:
    kind = lookup.types.get(lookup.fields[field], SqlType.STRING)
    value = f"cast({place.sql()}[{index}] as {kind.value})"
    if lookup.miss != "default":
        return value
    default = text_of(typed(lookup.default.get(field), kind))
    text = "null" if default is None else literal(default)
    return f"if({place.sql()} is null, cast({text} as {kind.value}), {value})"


def _guarded(enrich: Enrich, places: Mapping[str, Place], failed: Failed, body: str) -> str:
    """Derive and go on to the body, unless something required is missing."""
    required = [
        name
        for name, derived in enrich.derive.items()
        if isinstance(derived, DerivedField) and derived.required
    ]
    body = _unless([_null(name) for name in required], failed, body)
    body = _bind_used([(name, derived_sql(derived)) for name, derived in enrich.derive.items()], body)
    checks = [_null(name) for name in enrich.required if name in enrich.fields]
    for name, lookup in enrich.lookups.items():
        if lookup.miss == "dead-letter":
            checks.append(
                (f"{places[name].sql()} is null", f"lookup-miss: no row of the lookup {name} matches")
            )
    checks += [_null(name) for name in enrich.required if name not in enrich.fields]
    body = _bind(enrich, places, _unless(checks, failed, body))
    if not enrich.added():
        return body
    no_object = "not-an-object: the data is not a JSON object, so no fields can be added to it"
    return _unless([(f"{FIELDS} is null", no_object)], failed, body)


def _failed(failure: str) -> str:
    return f"named_struct('patch', cast(null as string), 'to', cast(null as string), 'failure', {failure})"


def _null(name: str) -> tuple[str, str]:
    return f"`{name}` is null", f"required-null: the required field {name} is null"


def _unless(checks: list[tuple[str, str]], failed: Failed, body: str) -> str:
    if not checks:
        return body
    cases = " ".join(f"when {condition} then {failed(literal(failure))}" for condition, failure in checks)
    return f"case {cases} else {body} end"


def _after_udf(enrich: Enrich, body: str) -> str:
    assert enrich.udf is not None
    schema = ", ".join(f"`{name}` string" for name in enrich.udf.returns)
    bindings = [("hifi return", f"from_json({RETURNED}, '{schema}')")]
    bindings += [
        (name, f"cast(`hifi return`.`{name}` as {kind.value})") for name, kind in enrich.udf.returns.items()
    ]
    failure = _failed(f"concat('udf-failed: ', substring({RETURNED}, 2))")
    nothing = _failed(literal("udf-failed: the function gave nothing for this event"))
    bound = _bind_used(bindings, body)
    failed = f"startswith({RETURNED}, '!')"
    return f"case when {RETURNED} is null then {nothing} when {failed} then {failure} else {bound} end"


def _wanted(pipe: Pipe) -> str:
    """Names of the destinations that want the event, in declared order; null conditions count as not true."""
    names = [
        f"if(({one.when}\n), '{one.name}', null)" if one.when else f"'{one.name}'"
        for one in pipe.destinations
    ]
    wanted = f"concat_ws(',', {', '.join(names)})"
    return f"if(({pipe.enrich.filter}\n), {wanted}, '')" if pipe.enrich.filter else wanted


def _added_in_order(enrich: Enrich) -> list[str]:
    names = [field for lookup in enrich.lookups.values() for field in lookup.fields]
    return [*names, *enrich.derive, *(enrich.udf.returns if enrich.udf else ())]


def _json(fields: Mapping[str, str]) -> str:
    options = {"ignoreNullFields": "false"} | TIME_FORMATS
    texts = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in options.items())
    return f"to_json({_struct(fields)}, map({texts}))"


def _struct(fields: Mapping[str, str]) -> str:
    pairs = ", ".join(f"'{name}', {value}" for name, value in fields.items())
    return f"named_struct({pairs})"
