"""Data that is parsed once, for its fields and for whether it is one JSON object."""

import random
from typing import Any

from pyspark.sql import functions as F

from hifi.spark.catalyst import Catalyst
from hifi.spark.json_fields import fields_of_valid, json_fields

NAMES = ["a", "b", "data"]
TEXTS = [
    "",
    "{}",
    " {} \r\n\t",
    "\ufeff{}",
    "{} {}",
    "{},{}",
    "{}]",
    "{}],[{}",
    "[{}]",
    '{"a":1}{"a":2}',
    '{"a":1},{"a":2},{"a":3}',
    '{"a":1},"data":{"a":9}',
    '{"a":1}],"data":[{"a":1}',
    '{"a":1},null',
    '{"a":1},',
    '{"a":1}}',
    '{"a":1}x',
    '{"a":1}//c',
    '{"a":1}\x00',
    '{/*c*/"a":1}',
    "{'a':1}",
    "{a:1}",
    '{"a":1,"a":2}',
    '{"a":1,"a":{"b":[2]}}',
    '{"z":1,"z":2}',
    '{"a":1,}',
    '{"a":01}',
    '{"z":01}',
    '{"z":+1}',
    '{"z":.5}',
    '{"z":1.}',
    '{"a":NaN}',
    '{"z":-INF}',
    '{"z":Infinity}',
    '{"a":1e400}',
    '{"z":1e400}',
    '{"a":-0.0}',
    '{"z":1E-999999}',
    '{"a":null,"b":true}',
    '{"a":tru}',
    '{"z":undefined}',
    '{"a":"\\q"}',
    '{"z":"\\q"}',
    '{"z":"\\u12"}',
    '{"a":"\\ud800"}',
    '{"z":"\\udc00x"}',
    '{"a":"\\ud83d\\ude00"}',
    '{"\\u0061":3}',
    '{"a":"\\/\\t\\\\ud800"}',
    '{"a":"x\ny"}',
    '{"z":"x\ty"}',
    '{"z":[1,2}',
    '{"z":[1,2,]}',
    '{"a":{"q":"é"},"b":[1,{"z":2.50}]}',
    '{"b c":7}',
    '{"a":' + "[" * 900 + "]" * 900 + "}",
    '{"z":' + "[" * 900 + "]" * 900 + "}",
    '{"a":' + "[" * 1100 + "]" * 1100 + "}",
    '{"z":' + "[" * 1100 + "]" * 1100 + "}",
    '{"a":' + "9" * 900 + "}",
    '{"z":' + "9" * 1200 + "}",
    '{"a":' + "9" * 1200 + "}",
    '{"' + "k" * 60_000 + '":1}',
    '{"a":"' + "x" * 100_000 + '"}',
]
INSERTED = "{}[],:\"\\'01e.-+nutrfals \t\n"


def mutated(count: int) -> list[str]:
    """Texts with some characters deleted, inserted or replaced, the same at each call."""
    random_numbers = random.Random(5)
    texts = []
    for _ in range(count):
        text = list(random_numbers.choice(TEXTS)[:300])
        for _ in range(random_numbers.randint(1, 3)):
            at = random_numbers.randrange(len(text) + 1)
            text[at : at + random_numbers.randint(0, 1)] = random_numbers.choice(INSERTED)
            if random_numbers.random() < 0.4:
                del text[at : at + 1]
        texts.append("".join(text))
    return texts


def compared(catalyst: Catalyst, names: list[str], texts: list[str]) -> list[Any]:
    """(text, fields parsed once, fields parsed twice) of each text."""
    begins = "is_valid_utf8(t) and startswith(ltrim(' \\t\\r\\n', t), '{')"
    twice = f"if({begins}, {fields_of_valid('t', names)}, null)"
    once = catalyst.column(catalyst.null_on_error(catalyst.expression(F.expr(json_fields("t", names)))))
    frame = catalyst.spark.createDataFrame([(text,) for text in texts], "t string").coalesce(1)
    return frame.select("t", once, F.expr(twice)).collect()


def test_data_parsed_once_has_the_fields_and_validity_of_data_parsed_twice(catalyst: Catalyst) -> None:
    texts = TEXTS + mutated(2000)
    for names in (NAMES, []):
        rows = compared(catalyst, names, texts)
        assert len(rows) == len(texts)
        assert [(text[:200], once, twice) for text, once, twice in rows if once != twice] == []
        assert 100 < sum(once is not None for _, once, _ in rows) < len(rows) - 100
