"""Receipts that were read are not read again, and one that cannot be read hides no other."""

import zlib
from types import SimpleNamespace
from typing import Any

from hifi.record.headers import DESTINATION, HOP, IDENTITY, OUTCOME, RECEIPT, SOURCE
from hifi.record.hop import write_enriched_hop
from hifi.record.identity import identity, identity_prefix, identity_stem, write_identity
from hifi.record.receipt import pack_receipt
from hifi_lake.recorded import RecordedDeliveries

P, Q = ("p", "lake"), ("q", "lake")


def receipt(
    offset: int, source: int, *, partition: int = 0, destination: bytes = b"lake", pipe: str = "p"
) -> Any:
    """A record of `receipts`."""
    stem = identity_stem(identity_prefix(pipe, 1, 1, 1), 0, 1)
    values = {OUTCOME: b"delivered", DESTINATION: destination, SOURCE: b"enriched:%d" % source}
    headers = [write_identity(stem, offset), write_enriched_hop(0, 0, b""), (RECEIPT, pack_receipt(values))]
    return SimpleNamespace(partition=partition, offset=offset, headers=headers)


def kept(recorded: RecordedDeliveries, name: tuple[str, str] = P) -> dict[int, list[int]]:
    return {partition: list(deliveries.offsets) for partition, deliveries in recorded.of_table(name).items()}


def test_a_receipt_that_cannot_be_read_is_skipped_alone() -> None:
    recorded = RecordedDeliveries()
    recorded.want({P}, {0: 5})
    hand_written = [receipt(1, 6, destination=b"\xff"), receipt(2, 7), receipt(3, 8)]
    hand_written[1].headers[0] = (IDENTITY, None)
    hand_written[2].headers[1] = (HOP, None)
    unreadable = recorded.add([receipt(0, 5), *hand_written, receipt(4, 9)])
    assert [record.offset for record, _ in unreadable] == [1]
    assert kept(recorded) == {0: [5, 8, 9]}, "the receipt without a value of the hop says enough"


def test_reading_goes_on_where_it_ended() -> None:
    recorded = RecordedDeliveries()
    recorded.want({P}, {0: 5, 1: 0})
    existing = {0: range(2, 100), 1: range(50)}
    assert recorded.unread(existing, {1: 40}) == {0: range(2, 100), 1: range(40, 50)}
    recorded.add([receipt(2, 4), receipt(3, 5), receipt(40, 0, partition=1)])
    recorded.want({P}, {0: 5, 1: 1})
    assert recorded.unread(existing, {1: 40}) == {0: range(4, 100), 1: range(41, 50)}
    assert kept(recorded) == {0: [5]}, "what is before the start is of no interest"
    assert recorded.unread({0: range(1)}, {}) == {0: range(1)}, "the topic was made anew"
    recorded.forget_before({0: 6})
    assert not recorded


def test_deliveries_at_one_offset_of_a_topic_that_was_made_again_are_told_by_their_events() -> None:
    recorded = RecordedDeliveries()
    recorded.want({P}, {0: 0})
    receipts = [receipt(number, 5) for number in range(3)]
    recorded.add([*receipts, receipt(3, 6)])
    recorded.forget_before({0: 5})
    seqs = [identity(record.headers).seq for record in [*receipts, receipt(3, 6)]]
    assert list(recorded.of_table(P)[0].checks) == [zlib.crc32(seq) for seq in seqs]
    recorded.forget_before({0: 6})
    assert list(recorded.of_table(P)[0].checks) == [zlib.crc32(seqs[3])]


def test_all_is_read_again_for_earlier_deliveries_and_for_another_table() -> None:
    recorded = RecordedDeliveries()
    for names, start in (({P}, {0: 5}), ({P}, {0: 4}), ({P, Q}, {0: 4})):
        recorded.want(names, start)
        assert recorded.unread({0: range(10)}, {}) == {0: range(10)}
        recorded.add([receipt(0, 4), receipt(1, 5), receipt(2, 5, pipe="q")])
    assert kept(recorded) == {0: [4, 5]}
    assert kept(recorded, Q) == {0: [5]}
