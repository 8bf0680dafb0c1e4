"""Truth of conditions of Spark SQL when fields are unknown. Pure: it does not use Spark, nor a full parser.

SQL has three truth values, and null stands for an unknown field, as long as no function turns null into a value, such
as `coalesce`. A condition is split at its outermost `or` and `and`, so that one part can be unknown and the others
decide.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"(?P<skipped>\s+|--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")"
    r"|(?P<name>`(?:``|[^`])*`)|(?P<word>\w+)|(?P<sign><=>|->|.)",
    re.DOTALL,
)
_NULL_AWARE_WORDS: Final = frozenset({"case", "is", "distinct", "exists", "select"})
_NULL_AWARE_SIGNS: Final = frozenset({"<=>", "->"})
_CLOSED_BY: Final = {"(": ")", "[": "]", "{": "}", "case": "end"}
_BEFORE_BRACKETS: Final = frozenset(
    {"and", "or", "not", "in", "between", "like", "ilike", "rlike", "regexp", "div"}
)
"""Words that no function is, though a bracket may follow."""
_NULL_IN_NULL_OUT: Final = frozenset(
    re.findall(
        r"\w+",
        """
        abs bigint boolean bround cast ceil ceiling char_length character_length concat contains crc32 date date_add
        date_diff date_format date_sub date_trunc datediff day dayofmonth dayofweek dayofyear decimal double endswith
        float floor from_unixtime hour ilike initcap instr int lcase left length levenshtein like lower lpad ltrim md5
        minute mod month negative pmod position pow power quarter regexp_count regexp_extract regexp_instr regexp_like
        regexp_replace regexp_substr replace reverse right rlike round rpad rtrim second sha sha1 sha2 sign signum
        smallint sqrt startswith string substr substring substring_index timestamp tinyint to_date to_timestamp
        translate trim trunc try_cast try_to_date try_to_timestamp ucase unix_timestamp upper weekday weekofyear year
        """,
    )
)
"""Functions whose result is null if an argument is, and types in brackets such as `decimal(10, 2)`."""


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def passes_null_on(sql: str) -> bool:
    """Whether an expression is null, or what its other fields alone make of it, if a field is null.

    False, too, for functions that are not listed here.
    """
    tokens = list(_tokens(sql))
    for index, token in enumerate(tokens):
        if token.kind == "word":
            follows_bracket = index + 1 < len(tokens) and tokens[index + 1].text == "("
            if token.text in _NULL_AWARE_WORDS:
                return False
            if follows_bracket and token.text not in _BEFORE_BRACKETS | _NULL_IN_NULL_OUT:
                return False
        elif token.text in _NULL_AWARE_SIGNS or (
            token.text == "(" and index and tokens[index - 1].kind == "name"
        ):
            return False
    return True


def alternatives(sql: str) -> list[list[str]]:
    """The parts of a condition: between its outermost `or`, and in each of them between the outermost `and`.

    A condition whose brackets do not match is one part.
    """
    outermost_words = _outermost(list(_tokens(sql)))
    if outermost_words is None:
        return [[sql]]
    disjuncts, start, is_between = [[""]], 0, False
    for token in outermost_words:
        if token.text == "between":
            is_between = True
        elif token.text == "and" and is_between:
            is_between = False
        elif token.text in ("and", "or"):
            disjuncts[-1][-1] = sql[start : token.start]
            start = token.end
            if token.text == "and":
                disjuncts[-1].append("")
            else:
                disjuncts.append([""])
    disjuncts[-1][-1] = sql[start:]
    return disjuncts


def _outermost(tokens: list[_Token]) -> list[_Token] | None:
    """The words outside of all brackets and `case … end`; None: these do not match."""
    words: list[_Token] = []
    closing_texts: list[str] = []
    for token in tokens:
        if token.text in _CLOSED_BY:
            closing_texts.append(_CLOSED_BY[token.text])
        elif closing_texts and token.text == closing_texts[-1]:
            closing_texts.pop()
        elif token.text in (")", "]", "}"):
            return None
        elif token.kind == "word" and not closing_texts:
            words.append(token)
    return None if closing_texts else words


def _tokens(sql: str) -> Iterator[_Token]:
    """The tokens of an expression in lower case, without white space, comments and texts."""
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup
        if kind is not None and kind != "skipped":
            yield _Token(kind, match.group().lower(), match.start(), match.end())
