"""A mask meets its field however path, key and number are written. No Kafka."""

import hashlib
import hmac
import unicodedata
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hifi.pipe.mask import Mask, SourceMask
from hifi.pipe.model import Normalize
from hifi.pipe.normalize.lazy_json import encode, open_object
from hifi.pipe.normalize.masking import UNMET_AFTER, Masker
from hifi.pipe.normalize.unmet_masks import UnmetMasks
from hifi.runtime.errors import Rejected
from hifi.runtime.exact_json import canonical_number
from hifi.runtime.health import Health

CANARY = "canary-4711"
KEY = "a key"


def masked(text: bytes | str, masks: dict[str, Any]) -> bytes:
    root = open_object(text.encode() if isinstance(text, str) else text)
    Masker(Normalize.model_validate({"mask": masks}).mask).apply(root)
    return encode(root)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("user.mail", '{"user.mail":"e@x","n":1.10}', '{"n":1.10}'),
        ("user.mail", '{"user":{"mail":"e@x"},"user.mail":"e@x"}', '{"user":{}}'),
        ("user.mail", '{"user.mail.work":"e@x","user":{"mail.home":1,"name":2}}', '{"user":{"name":2}}'),
        ("user", '{"user.mail":"e@x","userid":1}', '{"userid":1}'),
        ("a.b.c", '{"a.b":{"c":1},"a":{"b.c":2,"b":{"c":3,"d":4}}}', '{"a.b":{},"a":{"b":{"d":4}}}'),
        ("p.card", '{"p":[{"card":1},[{"card":2}],3],"p.card":4}', '{"p":[{},[{}],3]}'),
        ("p.0.card", '{"p":[{"card":1},{"card":2,"n":3}]}', '{"p":[{},{"n":3}]}'),
        ("p.*.card", '{"p":[{"card":1},[{"card":2}]]}', '{"p":[{},[{}]]}'),
        ("p.0.0.x", '{"p":[[{"x":1,"0":{"x":2}}]]}', '{"p":[[{"0":{}}]]}'),
        ("tags.0", '{"tags":["a","b"]}', "{}"),
        ("tags.0.1", '{"tags":[["a","b"]]}', "{}"),
        ("tags.*.*", '{"tags":["a",["b"]],"n":1}', '{"n":1}'),
        ("t.x.0.1", '{"t":[[{"x":[["a"]],"n":1}]]}', '{"t":[[{"n":1}]]}'),
        ("lines.0.x", '{"lines":{"0":{"x":1},"1":{"x":2}}}', '{"lines":{"0":{},"1":{"x":2}}}'),
        ("full name", '{"full name":1}', "{}"),
        ("ssn", '{"s\\u0073n":1}', "{}"),
        ("ssn", '{"ssn":1,"ssn":2}', "{}"),
        ("user.mail", '{"user":{"mail":1},"user":{"mail":2,"n":3}}', '{"user":{"n":3}}'),
        ("user.mail", '{"user":"none","mail":1}', '{"user":"none","mail":1}'),
    ],
)
def test_a_field_is_masked_however_its_path_is_written(path: str, text: str, expected: str) -> None:
    assert masked(text, {path: "drop"}) == expected.encode()
    assert b"[redacted]" in masked(text, {path: "redact"}) or text == expected


NAMES = st.sampled_from(["a", "b", "user", "mail", "0", "é", "a b"])
PATHS = st.lists(NAMES, min_size=1, max_size=5)


@pytest.mark.slow
@settings(max_examples=500)
@given(PATHS, st.data())
def test_a_masked_value_is_nowhere_in_the_data(path: list[str], choices: st.DataObject) -> None:
    value: Any = choices.draw(st.sampled_from([CANARY, [CANARY], {"x": {"y": CANARY}}]))
    cuts = [0, *choices.draw(st.lists(st.integers(1, len(path)), unique=True).map(sorted)), len(path)]
    for start, end in reversed(list(pairwise(cuts))):
        if start == end:
            continue
        if start and choices.draw(st.booleans()):
            value = [{"other": 1}, value]
        value = {".".join(path[start:end]): value, "other": 1.5}
    text = orjson.dumps(value if isinstance(value, dict) else {"x": value})
    for mask in ("drop", "redact"):
        result = masked(text, {".".join(path): mask})
        assert CANARY.encode() not in result
        assert b'"other":1.5' in result


SPELLINGS = [
    *("\u00e9", "e\u0301"),
    *("\u00c5", "A\u030a", "\u212b"),
    *("a\u0323\u0307", "a\u0307\u0323"),
    *("\u00c9", "\uff41", "a", "\ufb01", "fi"),
    *("\u00e9.a", "a.e\u0301", "e\u0301.\u212b"),
]
"""Names, those of the first three lines equal in the form NFC."""
DOCUMENTS = st.recursive(
    st.integers(0, 9),
    lambda values: (
        st.dictionaries(st.sampled_from(SPELLINGS), values, max_size=4) | st.lists(values, max_size=3)
    ),
    max_leaves=25,
)
_ROOTS = st.dictionaries(st.sampled_from(SPELLINGS), DOCUMENTS, max_size=5)
_MASKED_PATHS = st.lists(st.sampled_from(SPELLINGS), min_size=1, max_size=2).map(".".join)


def without(value: Any, path: str, trail: str = "") -> Any:
    """The oracle: a document without the fields whose names from the root on, joined by dots, begin with a path."""
    if isinstance(value, list):
        return [without(element, path, trail) for element in value]
    if not isinstance(value, dict):
        return value
    return {
        name: without(member, path, f"{trail}{name}.")
        for name, member in value.items()
        if not unicodedata.normalize("NFC", f"{trail}{name}.").startswith(
            unicodedata.normalize("NFC", f"{path}.")
        )
    }


@settings(max_examples=400)
@given(_ROOTS, _MASKED_PATHS)
def test_a_field_is_masked_in_each_form_of_unicode_in_which_its_name_is_equal(
    document: dict[str, Any], path: str
) -> None:
    assert orjson.loads(masked(orjson.dumps(document), {path: "drop"})) == without(document, path)


def test_names_of_another_compatibility_form_or_case_are_other_names() -> None:
    text = '{"\uff45\u0301":1,"\u00c9":2,"e\u0301":3,"\u00e9":{"x":4},"e\u0301.x":5}'
    assert masked(text, {"\u00e9": "drop"}) == '{"\uff45\u0301":1,"\u00c9":2}'.encode()
    assert masked(text, {"e\u0301": "drop"}) == '{"\uff45\u0301":1,"\u00c9":2}'.encode()


@pytest.mark.parametrize(
    ("path", "dotted"),
    [
        ("/user/mail", "user.mail"),
        ("$.user.mail", "user.mail"),
        ("items[0].card", "items.0.card"),
        ("$['a']", "a"),
    ],
)
def test_other_notations_of_a_path_are_refused_with_the_dotted_one(path: str, dotted: str) -> None:
    for model, declared in ((Normalize, {"mask": {path: "drop"}}), (SourceMask, {"data": {path: "drop"}})):
        with pytest.raises(ValidationError, match=f"written with dots: '{dotted}'"):
            model.model_validate(declared)


def digest(text: str) -> str:
    return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def hashed(monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    monkeypatch.setenv("MASK_KEY", KEY)
    return str(orjson.loads(masked('{"v":' + text + "}", {"v": {"hash": {"env": "MASK_KEY"}}}))["v"])


@pytest.mark.parametrize(
    ("canonical", "spellings"),
    [
        ("491234", ["491234", "491234.0", "4.91234e5", "4.91234E+5", "49123400e-2", '"491234"']),
        ("0", ["0", "-0", "0.0", "-0.000", "0e5", "0e-999999"]),
        ("-1.5", ["-1.5", "-1.50", "-15e-1", "-0.15e1"]),
        ("0.1", ["0.1", "0.10", "1e-1"]),
        (
            "123456789012345678901234567890",
            ["123456789012345678901234567890", "12345678901234567890123456789e1"],
        ),
        ("1e999990", ["1e999990", "10e999989", "1.0E+999990"]),
        (
            '{"a":1,"b":[0.5,{"é":true}]}',
            ['{"b":[0.50,{"\\u00e9":true}],"a":1.0}', '{ "a":10e-1,"b":[5e-1,{"é":true}]}'],
        ),
    ],
)
def test_equal_values_have_one_hash(
    monkeypatch: pytest.MonkeyPatch, canonical: str, spellings: list[str]
) -> None:
    assert {hashed(monkeypatch, text) for text in spellings} == {digest(canonical)}


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 30), st.booleans())
def test_a_number_has_one_canonical_form(number: Decimal, zeros: int, exponent: bool) -> None:
    sign, digits, power = number.as_tuple()
    assert isinstance(power, int)
    spelling = Decimal((sign, digits + (0,) * zeros, power - zeros))
    text = canonical_number(Decimal(f"{spelling:e}") if exponent else spelling)
    assert text == canonical_number(number)
    assert Decimal(text) == number
    if number == number.to_integral_value() and abs(number) < 10**900:
        assert text == canonical_number(int(number)) == str(int(number))


@given(st.fractions(), st.fractions())
def test_different_numbers_have_different_forms(first: Fraction, second: Fraction) -> None:
    forms = [canonical_number(Decimal(n.numerator) / Decimal(n.denominator)) for n in (first, second)]
    equal = Decimal(first.numerator) / first.denominator == Decimal(second.numerator) / second.denominator
    assert (forms[0] == forms[1]) == equal


@pytest.mark.parametrize("text", ["1e9999999999999999999", '{"a":1e9999999999999999999}'])
def test_a_value_that_cannot_be_hashed_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with pytest.raises(Rejected):
        hashed(monkeypatch, text)


def test_a_mask_that_never_met_a_field_is_shown_until_it_does() -> None:
    masks: dict[str, Mask] = {"user.mail": "drop", "n": "drop"}
    masker, health = Masker(masks), Health("normalize", "n-1")
    unmet_masks = UnmetMasks(health, "normalize.mask")
    for _ in range(UNMET_AFTER):
        assert masker.never_met() == []
        masker.apply(open_object(b'{"n":1,"User":{"mail":1}}'))
    unmet_masks.report("people", masker.never_met())
    assert "user.mail" in health.warnings["normalize.mask of people"]
    masker.apply(open_object(b'{"user":{"mail":1}}'))
    unmet_masks.report("people", masker.never_met())
    assert health.warnings == {}
