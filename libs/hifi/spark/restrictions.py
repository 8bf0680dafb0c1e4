"""The SQL that pipes may write: functions and operators by name, and how deep it is. Pure.

An expression gets one event and gives the same result whenever it is evaluated: it reads no file, clock or session, and
calls no Java. Where it raises an error, as `element_at` does for the index 0 and `rlike` for a wrong pattern,
`BoundedExpression` refuses the event with `sql-failed`. What Spark has and is not listed here is refused, also what a
later release adds.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTIONS: Final = _words(
    # arithmetic and bits
    """
    abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees div e
    exp expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod positive pow
    power radians rint round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply
    try_subtract unhex width_bucket bit_count bit_get getbit shiftleft shiftright shiftrightunsigned
    bitmap_bit_position bitmap_bucket_number bitmap_count % * + - / & << >> >>> ^ | ~
    """
    # conditions and comparisons
    """
    between coalesce if ifnull nanvl nullif nullifzero nvl nvl2 when zeroifnull ! < <= <=> = == > >= and
    equal_null ilike in isnan isnotnull isnull like not or regexp regexp_like rlike
    """
    # types
    """
    bigint binary boolean cast date decimal double float int smallint string time timestamp tinyint typeof
    try_to_binary to_binary to_char to_number to_varchar try_to_number
    """
    # text
    """
    ascii base64 bit_length btrim char char_length character_length chr collate collation concat concat_ws
    contains decode elt encode endswith find_in_set format_number format_string initcap instr is_valid_utf8
    lcase left len length levenshtein locate lower lpad ltrim luhn_check make_valid_utf8 mask octet_length
    overlay position printf quote regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace
    regexp_substr repeat replace reverse right rpad rtrim sentences soundex space split split_part startswith
    substr substring substring_index translate trim try_validate_utf8 ucase unbase64 upper validate_utf8
    parse_url try_parse_url url_decode try_url_decode url_encode aes_decrypt try_aes_decrypt crc32 hash md5 sha
    sha1 sha2 xxhash64
    """
    # dates and times
    """
    add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc
    dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime
    from_utc_timestamp hour last_day make_date make_dt_interval make_interval make_time make_timestamp
    make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month monthname months_between next_day
    quarter second time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros
    time_to_millis time_to_seconds time_trunc timestamp_micros timestamp_millis timestamp_seconds to_date
    to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc
    try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_date try_to_time
    try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear year
    """
    # arrays, maps and structs
    """
    array array_append array_compact array_contains array_distinct array_except array_insert array_intersect
    array_join array_max array_min array_position array_prepend array_remove array_repeat array_size array_union
    arrays_overlap arrays_zip flatten get sequence slice sort_array cardinality element_at size try_element_at
    aggregate array_sort filter forall reduce transform transform_keys transform_values zip_with map_filter
    map_zip_with exists map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys
    map_values str_to_map named_struct struct vector_cosine_similarity vector_inner_product vector_l2_distance
    vector_norm vector_normalize
    """
    # JSON, CSV and variants
    """
    from_json get_json_object json_array_length json_object_keys schema_of_json to_json from_csv schema_of_csv
    to_csv is_valid_variant is_variant_null parse_json schema_of_variant to_variant_object try_parse_json
    try_variant_get variant_get
    """
)
"""Names of the functions that a pipe may call, in lower case."""

_OPERATORS: Final = _words(
    """
    Literal UnresolvedAttribute UnresolvedFunction UnresolvedExtractValue LambdaFunction
    UnresolvedNamedLambdaVariable NamedArgumentExpression Alias CaseWhen Cast Collate UnresolvedCollation
    CreateNamedStruct SemiStructuredExtract In InSet Like LikeAll LikeAny NotLikeAll NotLikeAny ILike RLike
    Between IsNull IsNotNull IsNaN IsTrue IsFalse IsUnknown IsNotUnknown Not And Or EqualTo EqualNullSafe
    GreaterThan GreaterThanOrEqual LessThan LessThanOrEqual UnaryMinus UnaryPositive Add Subtract Multiply
    Divide Remainder IntegralDivide BitwiseAnd BitwiseOr BitwiseXor BitwiseNot ShiftLeft ShiftRight
    ShiftRightUnsigned Concat Substring StringTrim StringTrimLeft StringTrimRight StringTrimBoth StringLocate
    Overlay TimestampAdd TimestampDiff Lower Upper MultiplyDTInterval ExtractANSIIntervalDays
    """
)
"""Classes of the nodes that Spark's parser makes of operators, names and values."""
_GROWING: Final = _words(
    "repeat rpad lpad space array_repeat sequence format_string printf format_number array_insert"
)
_LOOPS: Final = _words(
    "aggregate reduce transform filter exists forall zip_with transform_keys transform_values map_filter map_zip_with "
    "array_sort"
)
_REGEXES: Final = _words(
    "rlike regexp regexp_like regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr "
    "split str_to_map Like ILike RLike LikeAll LikeAny NotLikeAll NotLikeAny"
)
_QUANTIFIERS: Final = frozenset("*+?{%")
_NUMBER: Final = re.compile(r"\d{1,30}")
_LARGEST_CONSTANT: Final = 10_000
"""Largest number in a constant that Spark may evaluate while it analyses an expression, where nothing bounds it."""
_MOST_LEVELS: Final = 200
"""Levels of operators and calls. Spark's parser balances chains of `and` and `or`, but no others."""
_TOO_DEEP: Final = (
    f"operators and calls are nested in more than {_MOST_LEVELS} levels, as which each `||` or `+` of a chain counts;"
    " use `concat` or an array function, or split it into several fields"
)
_CLOCK_WITHOUT_ARGUMENTS: Final = frozenset({"unix_timestamp", "to_unix_timestamp"})
"""Read the clock only when called without arguments."""
READS_CLOCK: Final = (
    "reads the clock, so a replayed event would get another result; use a field that holds the time"
)
CLOCK_LITERAL: Final = re.compile(
    r"\b(?:date|timestamp(?:_ntz|_ltz)?)\s*r?['\"]\s*(?:(?:now|today|tomorrow|yesterday)\b|t?\d\d?:)",
    re.IGNORECASE,
)
"""A typed literal, such as `date'today'` and `timestamp'12:30'`, of which the parser leaves only the value."""
LITERAL_READS_CLOCK: Final = f"a date or a time such as 'today' or '12:30' {READS_CLOCK}"
_CLOCK: Final = ("now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp")
_RANDOM: Final = (
    *("rand", "random", "randn", "uuid", "shuffle", "randstr", "uniform"),
    *("monotonically_increasing_id", "aes_encrypt"),
)
_SEVERAL_EVENTS: Final = _words("""
any any_value array_agg avg bit_and bit_or bit_xor bool_and bool_or collect_list collect_set count count_if every
first first_value last last_value listagg max max_by mean median min min_by mode percentile some stddev string_agg
sum variance explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack window
session_window cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
""")
_REASONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("raise_error", "assert_true"),
        "would stop every pipe when it raises; use `required` or `filter`",
    ),
    **dict.fromkeys(_CLOCK, READS_CLOCK),
    **dict.fromkeys(
        _SEVERAL_EVENTS, "is not allowed: aggregates, generators and window functions need several events"
    ),
    **dict.fromkeys(_RANDOM, "is random, so a replayed event would get another result; hash a field instead"),
}
_NOT_LISTED: Final = "is not allowed; libs/hifi/spark/restrictions.py lists the functions that are"
_NODE_REASONS: Final[Mapping[str, str]] = {
    "UnresolvedStar": "`*` is not allowed; name each field",
    "UnresolvedRegex": "`*` is not allowed; name each field",
    "ExpressionWithUnresolvedIdentifier": "IDENTIFIER is not allowed; write the name itself",
    "WindowExpression": "window functions need several events; an expression gets one",
    "AggregateExpression": "aggregates need several events; an expression gets one",
    **dict.fromkeys(
        ("Exists", "ListQuery", "ScalarSubquery", "InSubquery", "FunctionTableSubqueryArgumentExpression"),
        "subqueries are not supported; declare a lookup instead",
    ),
}


def violations(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The reasons why a parsed expression is not allowed, one sentence each; empty: it is.

    Args:
        nodes: the expression as returned by `Catalyst.parse`.
    """
    problems = []
    nodes = list(nodes)
    for node in nodes:
        kind = class_name(node)
        if kind == "UnresolvedFunction":
            problems += _function_problems(str(node["nameParts"]), int(node["num-children"]))
        elif kind not in _OPERATORS:
            problems.append(_NODE_REASONS.get(kind, f"{kind} is not allowed in an expression"))
    if problems:
        return problems
    root = _Node.read(nodes)
    return [_TOO_DEEP] if root is None else list(dict.fromkeys(_costly_constants(root)))


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a parsed expression: the name of its function, of its variable, or of its class; and its children."""

    name: str
    text: str
    children: "list[_Node]"

    @classmethod
    def read(cls, nodes: Iterable[Mapping[str, Any]]) -> "_Node | None":
        """The tree of nodes that stand in preorder; None: it has more than `_MOST_LEVELS`."""
        roots: list[_Node] = []
        open_siblings = [(roots, 1)]
        """The children read so far of each node above the next one, and how many it has in all."""
        for node in nodes:
            name = class_name(node)
            if name == "UnresolvedFunction":
                name = str(node["nameParts"]).strip("[]").rpartition(",")[2].strip(' "`').lower()
            read_node = cls(name, str(node.get("value", node.get("nameParts", ""))), [])
            while len(open_siblings[-1][0]) == open_siblings[-1][1]:
                open_siblings.pop()
            open_siblings[-1][0].append(read_node)
            open_siblings.append((read_node.children, int(node["num-children"])))
            if len(open_siblings) > _MOST_LEVELS:
                return None
        return roots[0]

    def nodes(self) -> "Iterator[_Node]":
        """The node and those below it, in preorder."""
        unread = [self]
        while unread:
            node = unread.pop()
            yield node
            unread += reversed(node.children)

    def is_constant(self) -> bool:
        """Whether it needs neither a field nor a variable of a lambda function around it."""
        lambdas = [node for node in self.nodes() if node.name == "LambdaFunction"]
        lambda_variables = {variable.text for node in lambdas for variable in node.children[1:]}
        return all(
            node.name != "UnresolvedAttribute"
            and (node.name != "UnresolvedNamedLambdaVariable" or node.text in lambda_variables)
            for node in self.nodes()
        )


def _costly_constants(root: _Node) -> Iterator[str]:
    """Constants that would cost time or memory before any event is there."""
    for node in root.nodes():
        is_costly = (
            (node.name in _GROWING and _is_large(node))
            or (
                node.name in _LOOPS
                and any(descendant.name in _GROWING | _LOOPS for descendant in list(node.nodes())[1:])
            )
            or (
                node.name in _REGEXES
                and any(_QUANTIFIERS & set(descendant.text) for descendant in node.nodes())
            )
        )
        if is_costly and node.is_constant():
            yield f"the constant `{node.name.lower()}` may take too long or be too large; write its value itself"


def _is_large(node: _Node) -> bool:
    descendants = list(node.nodes())[1:]
    numbers = [
        int(number)
        for descendant in descendants
        for number in _NUMBER.findall(descendant.text)
        if descendant.name == "Literal"
    ]
    return (
        any(descendant.name in _GROWING | _LOOPS for descendant in descendants)
        or max(numbers, default=0) > _LARGEST_CONSTANT
    )


def refused_nodes(nodes: Iterable[str], refused_functions: Mapping[str, str]) -> list[str]:
    """The reasons why an analysed expression is not allowed, whatever its text says, one sentence each.

    Args:
        nodes: names of the classes in it.
        refused_functions: name of a class to the function that is not allowed, from `Catalyst.refused_classes`.
    """
    functions = dict.fromkeys(refused_functions[name] for name in nodes if name in refused_functions)
    return [_refusal(function) for function in functions]


def class_name(node: Mapping[str, Any]) -> str:
    """The name of the class of a node, without its package."""
    return str(node["class"]).rpartition(".")[2].rstrip("$")


def _function_problems(name_parts: str, arguments: int) -> list[str]:
    segments = [segment.strip().strip('"`') for segment in name_parts.strip("[]").split(",")]
    name = segments[-1].lower()
    if name in _CLOCK_WITHOUT_ARGUMENTS and arguments == 0:
        return [f"the function `{name}` {READS_CLOCK}"]
    if len(segments) > 1 and name in FUNCTIONS:
        return [f"{'.'.join(segments)} is not allowed; write {name}"]
    return [] if name in FUNCTIONS else [_refusal(name)]


def _refusal(function: str) -> str:
    return f"the function `{function}` {_REASONS.get(function, _NOT_LISTED)}"
