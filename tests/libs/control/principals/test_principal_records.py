"""A record of principals counts whole or not at all: none lets in by halves."""

from typing import Any

import orjson
import pytest

from hifi.control.principals.principal import Principal, Principals, Role, token_sha256

ANN = Principal("ann", Role.OPERATOR, ("flights",), token_sha256("token"), 2_000_000, "test", 1)


def read_principals(**changes: Any) -> Principals:
    principals = Principals()
    body = orjson.loads(ANN.record().value or b"") | changes
    principals.take(b"ann", orjson.dumps({name: value for name, value in body.items() if value != "-"}), 0)
    return principals


def test_a_record_is_read_as_it_was_written() -> None:
    assert read_principals().of_token("token", 1) == ANN
    assert read_principals(later="a field of a later release").of_token("token", 1) == ANN
    assert read_principals().of_token("token", 2_000_000) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"expires_us": "never"},
        {"expires_us": "-"},
        {"expires_us": 1.5},
        {"expires_us": -1},
        {"expires_us": 2**60},
        {"token_sha256": []},
        {"token_sha256": None},
        {"role": "root"},
        {"role": ["admin"]},
        {"pipes": "flights"},
        {"pipes": None},
        {"pipes": [7]},
        {"name": "ben"},
        {"name": 7},
        {"at_us": "1"},
    ],
    ids=str,
)
def test_a_record_with_a_field_of_another_kind_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not the record of a principal"):
        read_principals(**changes)


def test_a_record_that_cannot_be_read_revokes_its_principal_and_shows_no_hash() -> None:
    principals = read_principals()
    with pytest.raises(ValueError) as caught:
        principals.take(
            b"ann", orjson.dumps(orjson.loads(ANN.record().value or b"") | {"expires_us": "x"}), 1
        )
    assert principals.of_token("token", 1) is None
    assert ANN.token_sha256 not in str(caught.value)
