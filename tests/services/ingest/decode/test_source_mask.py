"""Masks of the source leave nothing of what they mask, and the record key follows the masked attribute."""

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hifi.pipe.limit_check import require_mask_keys
from hifi.pipe.mask import SourceMask
from hifi.pipe.model import Pipe
from hifi.pipe.source import HttpSource
from hifi.runtime.errors import MaskUnavailable, Misconfigured, Rejected
from hifi_ingest.decode.source_mask import SourceMasker

KEY = "a-mask-key"
JSON = b"application/json"


@pytest.fixture
def hashed(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "key").write_text(KEY)
    return {"hash": {"file": str(tmp_path / "key")}}


def digest(value: str) -> bytes:
    return hmac.new(KEY.encode(), value.encode(), hashlib.sha256).hexdigest().encode()


def masker(**mask: Any) -> SourceMasker:
    return SourceMasker(SourceMask.model_validate(mask))


def test_fields_are_masked_in_objects_and_arrays(hashed: dict[str, Any]) -> None:
    source_masker = masker(data={"ssn": "drop", "buyer.name": "redact", "items.card": hashed})
    data = b'{"ssn":"canary","buyer":{"name":"canary","n":1.50},"items":[{"card":"4711"},{"card":null}]}'
    masked_data = source_masker.data(data, JSON)
    assert (
        masked_data
        == b'{"buyer":{"name":"[redacted]","n":1.50},"items":[{"card":"%b"},{"card":null}]}' % digest("4711")
    )
    assert source_masker.data(b"", None) == b""


@pytest.mark.parametrize(
    ("data", "kind"), [(b"{", None), (b"[1]", JSON), (b"{}", b"text/plain"), (b"\xff", b"application/json")]
)
def test_data_whose_fields_cannot_be_found_is_refused(data: bytes, kind: bytes | None) -> None:
    with pytest.raises(Rejected):
        masker(data={"ssn": "drop"}).data(data, kind)


def test_attributes_are_masked_and_the_key_with_them(hashed: dict[str, Any]) -> None:
    source_masker = masker(attributes={"subject": hashed, "region": "drop", "agent": "redact"})
    headers = [("ce_id", b"1"), ("ce_subject", b"ann"), ("ce_region", b"x"), ("ce_agent", b"y")]
    masked_headers = source_masker.headers(headers)
    assert masked_headers == [("ce_id", b"1"), ("ce_subject", digest("ann")), ("ce_agent", b"[redacted]")]
    assert source_masker.key(b"ann", masked_headers) == digest("ann")
    headers_with_key = [*headers, ("ce_partitionkey", b"k")]
    assert source_masker.key(b"k", source_masker.headers(headers_with_key)) == b"k", (
        "the key was not taken from the subject"
    )
    assert source_masker.key(b"1", source_masker.headers([("ce_id", b"1")])) == b"1"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"mask": {"attributes": {"id": "drop"}}}, "cannot be masked"),
        ({"mask": {"attributes": {"subject": "drop"}}}, "can only be hashed"),
        ({"id": "buyer.ssn", "mask": {"data": {"buyer": "drop"}}}, "choose another field"),
        ({"id": "e\u0301.ssn", "mask": {"data": {"\u00e9": "drop"}}}, "choose another field"),
        ({"partition_key": "ssn", "mask": {"data": {"ssn": "drop"}}}, "hash the attribute partitionkey"),
    ],
)
def test_a_mask_that_would_leave_the_value_elsewhere_is_refused(source: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        HttpSource.model_validate({"keys": [{"env": "KEY"}], **source})


def pipe(**sections: Any) -> Pipe:
    source = {"keys": [{"env": "KEY"}], **sections.pop("source", {})}
    destinations = [{"name": "d", "url": "http://127.0.0.1:9/"}]
    return Pipe.model_validate({"pipe": "a", "source": source, "destinations": destinations, **sections})


def test_a_version_that_adds_a_mask_whose_key_cannot_be_read_is_not_published(
    hashed: dict[str, Any], tmp_path: Path
) -> None:
    missing_key = {"hash": {"file": str(tmp_path / "missing")}}
    earlier_pipe = pipe(normalize={"mask": {"ssn": missing_key}})
    require_mask_keys([earlier_pipe], {"a": earlier_pipe})
    require_mask_keys([pipe(normalize={"mask": {"ssn": hashed, "n": "drop"}})], {"a": earlier_pipe})
    with pytest.raises(Misconfigured, match=r"normalize\.mask\.ssn"):
        require_mask_keys([earlier_pipe], {})
    masked_pipe = pipe(
        source={"mask": {"data": {"ssn": missing_key}}}, normalize={"mask": {"ssn": missing_key}}
    )
    with pytest.raises(Misconfigured, match=r"source\.mask\.data\.ssn"):
        require_mask_keys([masked_pipe], {"a": earlier_pipe})
    with pytest.raises(MaskUnavailable):
        SourceMasker(masked_pipe.source.mask or SourceMask())
