"""SQL that would need more than the heap of enrich's JVM, by the function that would allocate it."""

from collections.abc import Mapping
from typing import Final

FIELDS: Final = {"t": "string", "n": "bigint", "x": "double", "ts": "timestamp"}
EVENT: Final = {"t": "a," * 500, "n": 1, "x": 1.5, "ts": "2026-01-01T00:00:00Z"}
BUDGET_BYTES: Final = 64 * 2**20
"""The default of enrich."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TEXT: Final = "repeat(t, 60000)"
_HALF: Final = "repeat(t, 30000)"
_BINARY: Final = f"cast({_TEXT} as binary)"
_NUMBERS: Final = "sequence(n, n + 6000000)"
_MAP: Final = "map_from_arrays(sequence(n, n + 300000), sequence(n, n + 300000))"
_WIDE: Final = ", ".join(f"c{number}: int" for number in range(80))
_OBJECTS: Final = "concat('[', repeat(concat(left(t, 0), '{},'), 5000000), '{}]')"
_EMPTY_OBJECTS: Final = "parse_json(concat('[', repeat(concat(left(t, 0), '{},'), 300000), '{}]'))"
_KEYS: Final = "concat('{', repeat(concat(left(t, 0), '\"a\":1,'), 4000000), '\"b\":1}')"
_ROWS: Final = f"array<struct<{_WIDE}>>"
_ITEMS: Final = "concat('[', repeat(concat(left(t, 0), '1,'), 10000000), '1]')"


def _with(value: str, body: str) -> str:
    """An expression in which `s` is a value that is charged once."""
    return f"transform(array({value}), s -> {body})[0]"


def _times(value: str, count: int = 80) -> str:
    return ", ".join([value] * count)


LARGE: Final[Mapping[str, str]] = {
    # text
    "concat": _with("repeat(t, 24000)", f"length(concat({_times('s')}))"),
    "concat_ws": "length(concat_ws(repeat(t, 10000), transform(sequence(n, 500), i -> '')))",
    "array_join": "length(array_join(transform(sequence(n, 500), i -> ''), repeat(t, 10000)))",
    "repeat": "length(repeat(t, 2000000))",
    "lpad": "length(lpad(t, 2000000000, 'x'))",
    "rpad": "length(rpad(t, 2000000000, 'x'))",
    "space": "length(space(int(n + 2000000000)))",
    "replace": "length(replace(repeat(t, 4000), 'a', t))",
    "translate": f"length(translate({_TEXT}, 'a,', '🎉🎉'))",
    "overlay": _with("repeat(t, 40000)", "length(overlay(s placing s from 5 for 0))"),
    "regexp_replace": "length(regexp_replace(repeat(t, 1000), '(?s).+', repeat('$0', 2000)))",
    "regexp_extract_all": "size(regexp_extract_all(repeat(t, 30000), '(a)', 1))",
    "regexp_count": "regexp_count(repeat(t, 30000), ',')",
    "split": f"size(split({_TEXT}, ','))",
    "split_part": f"length(split_part({_TEXT}, ',', 7))",
    "sentences": "size(sentences(repeat(t, 20000)))",
    "str_to_map": f"size(str_to_map({_TEXT}, ',', ':'))",
    "format_string": f"length(format_string('{'%1$s' * 80}', repeat(t, 24000)))",
    "printf": f"length(printf('{'%1$s' * 80}', repeat(t, 24000)))",
    "format_number": "length(format_number(x, int(n + 2000000000)))",
    "initcap": f"length(initcap({_TEXT}))",
    "upper": f"length(upper({_TEXT}))",
    "ucase": f"length(ucase({_TEXT}))",
    "lower": f"length(lower({_TEXT}))",
    "lcase": f"length(lcase({_TEXT}))",
    "mask": f"length(mask({_TEXT}, 'X', '語', 'n', '語'))",
    "quote": f"length(quote({_TEXT}))",
    "make_valid_utf8": "length(make_valid_utf8(cast(unhex(repeat(hex(left(t, 1)), 30000000)) as string)))",
    "url_encode": f"length(url_encode({_TEXT}))",
    "url_decode": f"length(url_decode({_TEXT}))",
    "try_url_decode": f"length(try_url_decode({_TEXT}))",
    "parse_url": f"length(parse_url(concat('http://h/', {_HALF}), 'PATH'))",
    "try_parse_url": "length(try_parse_url(concat('http://h/', repeat(t, 30000)), 'PATH'))",
    "hex": f"length(hex({_TEXT}))",
    "base64": f"length(base64({_BINARY}))",
    "encode": f"length(encode({_TEXT}, 'utf-32'))",
    "decode": "length(decode(cast(repeat(t, 30000) as binary), 'iso-8859-1'))",
    "to_char": "length(to_char(cast(repeat(t, 30000) as binary), 'hex'))",
    "to_varchar": "length(to_varchar(cast(repeat(t, 30000) as binary), 'base64'))",
    # formats of times, which Spark keeps
    "date_format": "date_format(ts, repeat('yyyy-', int(n) * 10000))",
    "from_unixtime": "from_unixtime(n, repeat('yyyy-', int(n) * 10000))",
    "to_date": "to_date(t, repeat('yyyy-', int(n) * 10000))",
    "try_to_date": "try_to_date(t, repeat('yyyy-', int(n) * 10000))",
    "to_timestamp": "to_timestamp(t, repeat('yyyy-', int(n) * 10000))",
    "to_timestamp_ltz": "to_timestamp_ltz(t, repeat('yyyy-', int(n) * 10000))",
    "to_timestamp_ntz": "to_timestamp_ntz(t, repeat('yyyy-', int(n) * 10000))",
    "try_to_timestamp": "try_to_timestamp(t, repeat('yyyy-', int(n) * 10000))",
    "unix_timestamp": "unix_timestamp(t, repeat('yyyy-', int(n) * 10000))",
    "to_unix_timestamp": "to_unix_timestamp(t, repeat('yyyy-', int(n) * 10000))",
    # types
    "string": f"length(string({_NUMBERS}))",
    "cast": f"size(cast({_NUMBERS} as array<string>))",
    # arrays and maps
    "array": _with("repeat(t, 24000)", f"size(array({_times('s')}))"),
    "array_compact": f"size(array_compact({_NUMBERS}))",
    "array_distinct": f"size(array_distinct({_NUMBERS}))",
    "array_union": _with("sequence(n, n + 3000000)", "size(array_union(s, s))"),
    "array_intersect": _with("sequence(n, n + 3000000)", "size(array_intersect(s, s))"),
    "array_except": _with("sequence(n, n + 3000000)", "size(array_except(s, s))"),
    "arrays_overlap": _with("sequence(n, n + 3000000)", "arrays_overlap(s, s)"),
    "array_repeat": "size(array_repeat(t, 20000000))",
    "array_insert": "size(array_insert(array(n), int(n + 200000000), n))",
    "array_sort": f"size(array_sort({_NUMBERS}))",
    "sort_array": f"size(sort_array({_NUMBERS}))",
    "arrays_zip": _with("sequence(n, n + 3000000)", f"size(arrays_zip({_times('s')}))"),
    "flatten": _with("sequence(n, n + 3000000)", f"size(flatten(array({_times('s')})))"),
    "sequence": "size(sequence(n, n + 900000000))",
    "transform": "size(transform(sequence(n, n + 3000000), i -> cast(i as decimal(38, 10))))",
    "filter": f"size(filter({_NUMBERS}, i -> true))",
    "zip_with": _with(
        "sequence(n, n + 3000000)", "size(zip_with(s, s, (a, b) -> cast(a as decimal(38, 10))))"
    ),
    "aggregate": "length(aggregate(sequence(n, 60), t, (a, i) -> concat(a, a)))",
    "reduce": "length(reduce(sequence(n, 60), t, (a, i) -> concat(a, a)))",
    "map_concat": _with(_MAP, f"size(map_concat({_times('s')}))"),
    "map_from_arrays": _with("sequence(n, n + 3000000)", "size(map_from_arrays(s, s))"),
    "map_from_entries": "size(map_from_entries(arrays_zip(sequence(n, n + 600000), sequence(n, n + 600000))))",
    "struct": _with("repeat(t, 24000)", f"length(string(struct({_times('s')})))"),
    "named_struct": _with("repeat(t, 24000)", "length(string(named_struct('a', s, 'b', s, 'c', s)))"),
    "map": _with("repeat(t, 24000)", "size(map(1, s, 2, s, 3, s))"),
    # JSON, CSV and variants
    "from_json": f"size(from_json({_OBJECTS}, '{_ROWS}'))",
    "to_json": _with("repeat(chr(n), 20000000)", "length(to_json(struct(s)))"),
    "get_json_object": f"length(get_json_object(concat('[\"', {_HALF}, '\"]'), '$[*]'))",
    "json_object_keys": f"size(json_object_keys({_KEYS}))",
    "parse_json": f"schema_of_variant(parse_json({_ITEMS}))",
    "try_parse_json": f"schema_of_variant(try_parse_json({_ITEMS}))",
    "variant_get": f"size(variant_get({_EMPTY_OBJECTS}, '$', '{_ROWS}'))",
    "try_variant_get": f"size(try_variant_get({_EMPTY_OBJECTS}, '$', '{_ROWS}'))",
    "to_variant_object": f"schema_of_variant(to_variant_object({_NUMBERS}))",
    "from_csv": "length(from_csv(repeat(t, 40000), 'a string').a)",
    "to_csv": "length(to_csv(struct(repeat(t, 24000) as s)))",
}
"""Each is refused for its memory."""
FURTHER_LARGE: Final = (
    *(f"regexp_like(t, {_HALF})", f"regexp_replace(t, {_HALF}, 'x')", f"size(split(t, {_HALF}))"),
    *(f"t like {_HALF}", f"size(str_to_map(t, ',', {_HALF}))", f"cast({_HALF} as decimal(10, 2))"),
    *(f"size(split({_TEXT}, ''))", f"size(split({_TEXT}, '[,]+'))", f"size(split({_TEXT}, '(?=,)'))"),
    "length(array_join(transform(sequence(n, 500), i -> string(null)), ',', repeat(t, 10000)))",
    "length(replace(repeat(t, 4000) collate utf8_lcase, 'A', t))",
    "length(replace(repeat(t, 4000) collate unicode_ci, 'A', t))",
    "size(split_part(repeat(t, 30000) collate utf8_lcase, 'A', 3) is null)".replace("size(", "("),
    f"size(from_json({_ITEMS}, 'array<bigint>'))",
    "size(from_json(concat('[', repeat(concat(left(t, 0), '[],'), 5000000), '[]]'), 'array<array<int>>'))",
    "size(from_json(concat('[', repeat(concat(left(t, 0), '{},'), 5000000), '{}]'), 'array<map<string, int>>'))",
    _with("sequence(n, n + 3000000)", f"size(concat({_times('s')}))"),
    "length(cast(parse_json(concat('[', repeat(concat(left(t, 0), '1,'), 600000), '1]')) as string))",
)
"""As well, other branches of the functions."""
_BOUNDED_MAP: Final = "map_from_arrays(sequence(n, n + 250000), sequence(n, n + 250000))"
WITHIN: Final[Mapping[str, str]] = {
    **{
        name: f"length(string({name}({_TEXT})))"
        for name in (
            *(
                "ascii",
                "bit_length",
                "btrim",
                "char_length",
                "character_length",
                "is_valid_utf8",
                "length",
                "len",
            ),
            *(
                "ltrim",
                "luhn_check",
                "octet_length",
                "reverse",
                "rtrim",
                "soundex",
                "trim",
                "crc32",
                "hash",
                "md5",
            ),
            *("sha", "sha1", "xxhash64", "unbase64", "unhex", "try_validate_utf8", "validate_utf8", "binary"),
            *(
                "to_binary",
                "try_to_binary",
                "collation",
                "json_array_length",
                "typeof",
            ),
            *(
                "bigint",
                "double",
                "float",
                "int",
                "smallint",
                "tinyint",
                "date",
                "timestamp",
                "boolean",
            ),
            "decimal",
        )
    },
    **{name: f"size({name}({_NUMBERS}, n))" for name in ("array_append", "array_prepend", "array_remove")},
    **{
        name: f"{name}({_NUMBERS})"
        for name in ("array_max", "array_min", "array_size", "cardinality", "size")
    },
    **{name: f"{name}({_NUMBERS}, 7)" for name in ("array_contains", "array_position")},
    **{name: f"{name}({_NUMBERS}, 7)" for name in ("get", "element_at", "try_element_at")},
    **{name: f"{name}({_NUMBERS}, i -> i > 0)" for name in ("exists", "forall")},
    **{name: f"size({name}({_BOUNDED_MAP}))" for name in ("map_entries", "map_keys", "map_values")},
    **{name: f"size({name}({_BOUNDED_MAP}, (k, v) -> k))" for name in ("transform_keys", "transform_values")},
    "map_filter": f"size(map_filter({_BOUNDED_MAP}, (k, v) -> true))",
    "map_zip_with": f"size(map_zip_with({_BOUNDED_MAP}, map(n, n), (k, a, b) -> a))",
    "map_contains_key": f"map_contains_key({_BOUNDED_MAP}, 7)",
    "slice": f"size(slice({_NUMBERS}, 2, 5000000))",
    "collate": f"length(collate({_TEXT}, 'unicode_ci'))",
    "contains": f"contains({_TEXT}, 'b')",
    "endswith": f"endswith({_TEXT}, 'b')",
    "startswith": f"startswith({_TEXT}, 'b')",
    "instr": f"instr({_TEXT}, 'b')",
    "position": f"position('b' in {_TEXT})",
    "locate": f"locate('b', {_TEXT})",
    "find_in_set": f"find_in_set('b', {_TEXT})",
    "levenshtein": "levenshtein(repeat(t, 10), repeat(t, 11))",
    "left": f"length(left({_TEXT}, 50000000))",
    "right": f"length(right({_TEXT}, 50000000))",
    "substr": f"length(substr({_TEXT}, 3))",
    "substring": f"length(substring({_TEXT}, 3))",
    "substring_index": f"length(substring_index({_TEXT}, 'b', 3))",
    "elt": f"length(elt(1, {_TEXT}, 'x'))",
    "regexp": f"regexp({_TEXT}, 'b')",
    "regexp_like": f"regexp_like({_TEXT}, 'b')",
    "rlike": f"rlike({_TEXT}, 'b')",
    "like": f"{_TEXT} like '%b'",
    "ilike": f"{_TEXT} ilike '%b'",
    "regexp_extract": f"length(regexp_extract({_TEXT}, '(.)(.)', 2))",
    "regexp_substr": f"length(regexp_substr({_TEXT}, 'a'))",
    "regexp_instr": f"regexp_instr({_TEXT}, 'b')",
    "sha2": f"sha2({_TEXT}, 256)",
    "aes_decrypt": f"length(try_aes_decrypt({_BINARY}, cast(left(t, 16) as binary)))",
    "try_aes_decrypt": f"length(try_aes_decrypt({_BINARY}, cast(left(t, 16) as binary)))",
    "conv": f"conv({_TEXT}, 10, 16)",
    "to_number": f"try_to_number({_TEXT}, '999')",
    "try_to_number": f"try_to_number({_TEXT}, '999')",
    "schema_of_variant": "schema_of_variant(to_variant_object(sequence(n, n + 700000)))",
    "is_variant_null": "is_variant_null(to_variant_object(sequence(n, n + 700000)))",
    "is_valid_variant": "is_valid_variant(to_variant_object(sequence(n, n + 700000)))",
    "bitmap_count": f"bitmap_count({_BINARY})",
    **{
        name: f"{name}({values}, {values})"
        for name in ("vector_cosine_similarity", "vector_inner_product", "vector_l2_distance")
        for values in ("transform(sequence(n, n + 600000), i -> float(i))",)
    },
    **{
        name: f"string({name}(transform(sequence(n, n + 600000), i -> float(i)), 2.0f)) is null"
        for name in ("vector_norm", "vector_normalize")
    },
}
"""Their results are no larger than their arguments, which are counted. They may be refused, but end no JVM."""
SMALL: Final = _words(
    """
    ! % & * + - / < << <= <=> = == > >= >> >>> ^ abs acos acosh add_months and asin asinh atan atan2 atanh
    between bin bit_count bit_get bitmap_bit_position bitmap_bucket_number bround cbrt ceil ceiling char chr
    coalesce convert_timezone cos cosh cot csc date_add date_diff date_from_unix_date date_part date_sub
    date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear degrees div e equal_null
    exp expm1 extract factorial floor from_utc_timestamp getbit greatest hour hypot if ifnull in isnan
    isnotnull isnull last_day least ln log log10 log1p log2 make_date make_dt_interval make_interval
    make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute mod month
    monthname months_between nanvl negative next_day not nullif nullifzero nvl nvl2 or pi pmod positive pow
    power quarter radians rint round schema_of_csv schema_of_json sec second shiftleft shiftright
    shiftrightunsigned sign signum sin sinh sqrt tan tanh time time_bucket time_diff time_from_micros
    time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc
    timestamp_micros timestamp_millis timestamp_seconds to_time to_utc_timestamp trunc try_add try_divide
    try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply
    try_subtract try_to_time unix_date unix_micros unix_millis unix_seconds weekday weekofyear when
    width_bucket year zeroifnull | ~
    """
)
"""Their results are small, or one of their arguments, or their arguments are constant. Pipes have no type `time`."""
TEXT: Final = "k=v,X yZ," * 11_000
"""A field of an ordinary large event, 99 kB."""
ORDINARY: Final[Mapping[str, object]] = {
    "size(split(t, ','))": 22_001,
    "size(split(t, ',+'))": 22_001,
    "size(split(t, ',', 3))": 3,
    "size(split(concat(t, t, t, t, t, t, t, t), ','))": 176_001,
    "size(split(concat(t, t, t, t, t, t, t, t), ',', 9))": 9,
    "split(concat(t, t, t, t, t, t, t, t), ',', 3)[1]": "X yZ",
    "size(split(t, ''))": 99_000,
    "split_part(concat(t, t, t, t, t, t, t, t), ',', 176000)": "X yZ",
    f"length(concat({_times('t', 30)}))": 2_970_000,
    "length(concat_ws(', ', split(t, ',')))": 121_000,
    "length(array_join(split(t, ','), ', ', '-'))": 121_000,
    "length(upper(initcap(lower(t))))": 99_000,
    "length(replace(t, ',', ', '))": 121_000,
    "length(regexp_replace(t, '([a-z])=', '$1$1=='))": 121_000,
    "size(regexp_extract_all(t, '([a-z])=', 1))": 11_000,
    "length(translate(t, 'k=,', 'K:;'))": 99_000,
    "length(format_string('%s and %-8s', t, t))": 198_005,
    "length(url_decode(url_encode(t)))": 99_000,
    "length(decode(encode(t, 'utf-16'), 'utf-16'))": 99_000,
    "length(unbase64(base64(encode(t, 'utf-8'))))": 99_000,
    "length(unhex(hex(t)))": 99_000,
    "length(mask(t))": 99_000,
    "size(sentences(t))": 1,
    "length(to_json(named_struct('a', t, 'b', split(t, ','))))": 242_017,
    "size(from_json(to_json(split(t, ',')), 'array<string>'))": 22_001,
    "size(from_json(concat('[', repeat('{\"a\":1,\"b\":[1.5]},', 5000), '{}]'), "
    "'array<struct<a: bigint, b: array<decimal(20, 2)>>>'))": 5_001,
    "size(cast(parse_json(to_json(split(t, ','))) as array<string>))": 22_001,
    "size(array_distinct(split(t, ',')))": 3,
    "size(array_sort(split(t, ',')))": 22_001,
    "size(transform(filter(split(t, ','), s -> s != ''), s -> upper(s)))": 22_000,
    "size(arrays_zip(split(t, ','), split(t, ',')))": 22_001,
    "size(map_from_entries(transform(sequence(n, 10000), i -> struct(i, i))))": 10_000,
    "size(map_concat(map('a', t), str_to_map('b:c', ',', ':')))": 2,
    "length(string(split(t, ',')))": 121_002,
    "date_format(ts, concat('yyyy-', 'MM-dd', left(t, 0)))": "2026-01-01",
    "regexp_count(t, 'k')": 11_000,
    "length(quote(overlay(t placing 'x' from 3 for 1)))": 99_002,
}
"""Their results for an event with that text."""
