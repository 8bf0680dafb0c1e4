"""The records that an earlier release wrote, as recorded bytes, are read as what they were."""

from typing import NamedTuple

import pytest
from tests.releases.recorded_stream import EVENTS, PARTITIONS, PROCESSED, recorded

from hifi.record.fields import fields
from hifi.record.headers import ATTEMPT, DESTINATION, OUTCOME, PASS, Headers
from hifi.record.hop import hop
from hifi.record.identity import identity
from hifi.record.record import Record
from hifi_observe.ledger.grouping import group_records


class Consumed(NamedTuple):
    """A record as a consumer returns it."""

    offset: int
    timestamp: int
    headers: Headers
    value: bytes | None


KINDS = {"raw": "raw", "normalized": "normalized", "enriched": "enriched", "receipts": "receipts"} | {
    "retry-in": "retry-in.5s"
}
"""Name in the recording, and kind of topic as observe calls it."""


@pytest.mark.parametrize("name", KINDS)
def test_observe_counts_every_record(name: str) -> None:
    for records in recorded()[name]:
        consumed = [
            Consumed(offset, 1_764_000_000_000, record.headers, record.value)
            for offset, record in enumerate(records)
        ]
        batch = group_records(KINDS[name].partition(".")[0], consumed, 0)
        assert batch.foreign == 0
        assert [pipe for pipe, _ in batch.minutes] == [b"recorded"] * len(batch.minutes)
        assert batch.columns.offsets == list(range(len(records)))


def test_the_identity_is_the_same_on_every_topic_and_the_hop_leads_back_to_raw() -> None:
    records_by_topic = recorded()
    for partition in range(PARTITIONS):
        accepted = [identity(record.headers) for record in records_by_topic["raw"][partition]]
        assert [(identity.pipe, identity.revision) for identity in accepted] == [("recorded", 1)] * EVENTS
        assert [identity.minute for identity in accepted] == [
            identity.accepted_us // 60_000_000 for identity in accepted
        ]
        assert [identity.revision_offset for identity in accepted] == [1] * EVENTS
        for name in ("normalized", "enriched"):
            records = records_by_topic[name][partition]
            assert [identity(record.headers) for record in records] == accepted
            assert [hop(record.headers).raw for record in records] == list(range(EVENTS))
        assert {hop(record.headers).to for record in records_by_topic["enriched"][partition]} == {b"crm"}


def test_receipts_and_retries_have_their_fields() -> None:
    records_by_topic = recorded()
    for partition in range(PARTITIONS):
        outcomes = [record_fields(record) for record in records_by_topic["receipts"][partition]]
        assert [outcome[OUTCOME] for outcome in outcomes] == [b"delivered", b"retry"]
        assert len(outcomes) == PROCESSED
        (retry,) = records_by_topic["retry-in"][partition]
        assert (record_fields(retry)[DESTINATION], record_fields(retry)[PASS]) == (b"crm", b"0")
        assert int(record_fields(retry)[ATTEMPT]) > 1


def record_fields(record: Record) -> dict[str, bytes]:
    """Headers and fields of a record by name."""
    return fields(record.headers)
