"""An event that a client repeats has the fingerprint of the first time; one that it changed has another one."""

import pytest
from aiokafka import ConsumerRecord

from hifi.record.headers import UNMASKED
from hifi.record.identity import Identity
from hifi_normalize.idempotency.fingerprint import Fingerprint, fingerprint

ACCEPTED_US = 1_800_000_000_000_000
PLAIN_SOURCE = b"/v1/pipes/p/events"
EVENT = {
    "ce_specversion": b"1.0",
    "ce_id": b"1",
    "ce_source": b"/s",
    "ce_type": b"t",
    "ce_subject": b"s",
    "ce_time": b"2026-01-01T00:00:00Z",
    "content-type": b"application/json",
}


def fingerprint_of(
    changes: dict[str, bytes],
    value: bytes = b"{}",
    *,
    accepted_us: int = ACCEPTED_US,
    declares_id: bool = True,
) -> Fingerprint | None:
    headers = [("hifi", b""), *(EVENT | changes).items()]
    record = ConsumerRecord("raw", 0, 7, 1, 1, b"k", value, None, 0, 0, headers)
    identity = Identity("p", 1, 1, accepted_us, 1, b"0000000000000abc:1")
    return fingerprint(record, identity, declares_id=declares_id)


def data_digest(changes: dict[str, bytes], value: bytes = b"{}", *, accepted_us: int = ACCEPTED_US) -> int:
    record_fingerprint = fingerprint_of(changes, value, accepted_us=accepted_us)
    assert record_fingerprint is not None
    return record_fingerprint.data


@pytest.mark.parametrize(
    ("event_id", "is_generated"),
    [
        (b"0198c0de-0000-7000-8000-000000000000", True),
        (b"0198c0de-0000-4000-8000-000000000000", False),
        (b"nightly-run-06718-10-d41d8cd98f00b20", False),
    ],
)
def test_only_an_id_that_ingest_generated_has_no_fingerprint(event_id: bytes, *, is_generated: bool) -> None:
    assert len(event_id) == 36
    headers = {"ce_id": event_id, "ce_source": PLAIN_SOURCE}
    assert (fingerprint_of(headers, declares_id=False) is None) is is_generated


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ce_type", b"t.deleted"),
        ("ce_subject", b"s2"),
        ("ce_partitionkey", b"k2"),
        ("ce_time", b"2026-01-01T00:00:01Z"),
        ("ce_region", b"eu"),
        ("content-type", b"text/plain"),
        (UNMASKED, b"0011223344556677"),
    ],
)
def test_an_event_that_differs_in_an_attribute_is_another_event(name: str, value: bytes) -> None:
    assert data_digest({name: value}) != data_digest({})


def test_other_data_is_another_event_and_moving_bytes_between_parts_does_not_hide_it() -> None:
    assert data_digest({}, b'{"n":1}') != data_digest({}, b'{"n":2}')
    assert data_digest({"ce_a": b"1"}, b"2") != data_digest({"ce_a": b"12"}, b"")
    assert data_digest({"ce_a": b"1", "ce_b": b"2"}) != data_digest({"ce_a": b"2", "ce_b": b"1"})


def test_traces_and_the_order_of_attributes_do_not_count() -> None:
    trace = {
        "ce_traceparent": b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "ce_tracestate": b"a=b",
    }
    assert data_digest(trace) == data_digest({})
    assert data_digest({"ce_b": b"2", "ce_a": b"1"}) == data_digest({"ce_a": b"1", "ce_b": b"2"})


def test_the_accepted_time_of_plain_json_does_not_count() -> None:
    times = ((ACCEPTED_US, b"2027-01-15T08:00:00.000000Z"), (ACCEPTED_US + 1, b"2027-01-15T08:00:00.000001Z"))
    first_digest, repeated_digest = [
        data_digest({"ce_source": PLAIN_SOURCE, "ce_time": time}, accepted_us=accepted_us)
        for accepted_us, time in times
    ]
    assert first_digest == repeated_digest
    assert first_digest == data_digest({"ce_source": PLAIN_SOURCE, "ce_time": b""}), (
        "it is repeated without a time"
    )
    assert data_digest({"ce_time": times[0][1]}) != data_digest({"ce_time": times[1][1]})
