"""The value of a masked column is nowhere in an event, neither before the change nor in keys. No Kafka."""

from typing import Any

import orjson
import pytest
from tests.libs.pipe.normalize.test_left_out import DEBEZIUM

from hifi.pipe.limit_check import require_allowed
from hifi.pipe.model import Pipe
from hifi.pipe.normalize.left_out import notes_on_changes
from hifi.pipe.normalize.program import compile_pipe
from hifi.runtime.errors import Misconfigured, Rejected

CANARY = "canary-4711"
SQL = {
    "kind": "sql",
    "database": {"host": "db.example", "name": "shop", "user": "hifi"},
    "table": "people",
    "column": "at",
    "key": ["mail"],
    "partition_key": "town",
}
KAFKA = {"kind": "kafka", "bootstrap": "127.0.0.1:9092", "topic": "people", "partition_key": "user.mail"}
HTTP = {"keys": [{"sha256": "0" * 64}], "partition_key": "user.mail"}
HASH = {"hash": {"env": "MASK_KEY"}}


@pytest.fixture(autouse=True)
def mask_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", "a key")


def pipe(source: dict[str, Any], **normalize: Any) -> Pipe:
    destination = {"name": "d", "url": "http://127.0.0.1:1/"}
    return Pipe.model_validate(
        {"pipe": "people", "source": source, "normalize": normalize, "destinations": [destination]}
    )


def change(**members: Any) -> dict[str, Any]:
    row = {"id": 1, "mail": CANARY, "doc": {"mail": CANARY}}
    return row | {"change": {"op": "update", "key": {"mail": CANARY}, "before": row, **members}}


def run(data: dict[str, Any], **normalize: Any) -> Any:
    return orjson.loads(
        compile_pipe(pipe(DEBEZIUM, **normalize)).run(orjson.dumps(data), b"application/json") or b""
    )


@pytest.mark.parametrize("mask", ["drop", "redact", HASH])
@pytest.mark.parametrize(
    "other_rules",
    [
        {},
        {"fields": {"change": "change", "mail": "mail", "doc": "doc"}, "keep": "mapped"},
        {"fields": {"was": {"from": "change.before"}}},
    ],
)
def test_the_row_before_and_the_key_are_masked_as_the_column_is(
    mask: Any, other_rules: dict[str, Any]
) -> None:
    masked = run(change(), mask={"mail": mask, "doc.mail": mask}, **other_rules)
    assert CANARY not in repr(masked)
    key, row_before = masked["change"]["key"], masked["change"]["before"]
    assert key.get("mail") == row_before.get("mail") == masked.get("mail")
    assert row_before["doc"] == masked["doc"]


@pytest.mark.parametrize(("name", "masked_name"), [("email", "email"), ("e\u0301mail", "\u00e9mail")])
def test_a_column_that_is_masked_under_another_name_is_masked_under_its_own(
    name: str, masked_name: str
) -> None:
    fields = {name: "mail", "event.change": "change"}
    masked = run(change(), fields=fields, keep="mapped", mask={masked_name: HASH})
    assert masked[name] == masked["event"]["change"]["before"]["mail"]
    del masked["event"]["change"]["before"]["doc"]
    assert CANARY not in repr(masked)


def test_record_keys_have_hashes_in_place_of_hashed_columns() -> None:
    mask_key = compile_pipe(pipe(DEBEZIUM, mask={"mail": HASH})).mask_key
    assert mask_key is not None
    first, repeated, other_key = (mask_key(b'{"mail":"%b", "n":1}' % mail) for mail in (b"a", b"a", b"b"))
    assert first == repeated != other_key
    assert orjson.loads(first or b"").keys() == {"mail", "n"}
    for unmasked in (None, b"", b"public.people", b"{", b'{"id": 1}'):
        assert mask_key(unmasked) == unmasked


@pytest.mark.parametrize("mask", ["drop", "redact"])
def test_a_key_that_no_hash_can_stand_for_is_refused_and_the_check_says_so(mask: str) -> None:
    declared_pipe = pipe(DEBEZIUM, mask={"mail": mask})
    mask_key = compile_pipe(declared_pipe).mask_key
    assert mask_key is not None
    assert mask_key(b'{"id": 1}') == b'{"id": 1}'
    with pytest.raises(Rejected, match="hash it instead") as refusal:
        mask_key(b'{"mail":"canary-4711"}')
    assert refusal.value.reason == "mask-unavailable"
    (note,) = notes_on_changes(declared_pipe)
    assert "normalize.mask: mail" in note
    assert not list(notes_on_changes(pipe(DEBEZIUM, mask={"mail": HASH})))


@pytest.mark.parametrize(
    ("source", "normalize", "setting"),
    [
        (SQL, {"mask": {"mail": HASH}}, "key"),
        (SQL, {"mask": {"at": "drop"}}, "column"),
        (SQL, {"mask": {"town.name": "drop"}}, "partition_key"),
        (SQL, {"mask": {"email": "drop"}, "fields": {"email": "mail"}, "keep": "mapped"}, "key"),
        (KAFKA, {"mask": {"user": "drop"}}, "partition_key"),
        (HTTP, {"mask": {"user": "drop"}}, "partition_key"),
        (HTTP | {"partition_key": "e\u0301.mail"}, {"mask": {"\u00e9": "drop"}}, "partition_key"),
    ],
)
def test_a_mask_of_a_field_that_ids_or_keys_have_is_refused(
    source: dict[str, Any], normalize: dict[str, Any], setting: str
) -> None:
    with pytest.raises(Misconfigured, match=f"normalize.mask.*source.{setting}"):
        require_allowed([pipe(source, **normalize)])


@pytest.mark.parametrize(
    "normalize",
    [{"mask": {"name": "drop", "mailbox": "drop"}}, {"mask": {"m": HASH}, "fields": {"m": "mail"}}],
)
def test_masks_of_other_fields_are_allowed(normalize: dict[str, Any]) -> None:
    require_allowed([pipe(SQL, **normalize)])
