"""A record on which the code of a kind fails is refused alone, with its id; one whose schema was displaced is read."""

import asyncio
from types import SimpleNamespace
from typing import Any

from hifi.pipe.sources.event import SourceEvent
from hifi.record.headers import REFUSED
from hifi.record.refusal import parse_refusal
from hifi_collect.topic.topic_reader import KafkaTopicReader


class Reader(KafkaTopicReader):
    """Reads no topic: makes events of the records that it is given."""

    def __init__(self, failures: dict[int, int]) -> None:
        self._pipe, self._cluster = "orders", "cluster"
        self._turns = asyncio.Lock()
        self._max_bytes = 100
        self.failures = failures
        """Offset to how often it fails."""
        self.prepared: list[int] = []
        self._event = self.make

    def make(self, record: Any) -> SourceEvent:
        if self.failures.get(record.offset, 0):
            self.failures[record.offset] -= 1
            raise KeyError(record.offset)
        return SourceEvent(record.offset, b"k", record.value, [("ce_id", b"%d" % record.offset)], None)

    async def _prepare(self, _: Any, batch: Any) -> None:
        self.prepared += [record.offset for record in batch]


async def events(reader: Reader) -> list[SourceEvent]:
    records: Any = [
        SimpleNamespace(topic="t", partition=1, offset=offset, value=b"{}" if offset else b"x" * 101)
        for offset in range(1000)
    ]
    return await reader._events(None, records)  # type: ignore[arg-type]


async def test_a_record_on_which_the_reader_fails_again_is_refused_alone_with_its_id() -> None:
    reader = Reader({500: 99})
    source_events = await events(reader)
    assert [event.position for event in source_events] == [*range(1000)]
    assert [event.position for event in source_events if REFUSED in dict(event.headers)] == [500]
    headers = dict(source_events[500].headers)
    assert (headers["ce_id"], headers["ce_source"]) == (b"cluster/t/1/500", b"kafka://cluster/t")
    assert parse_refusal(headers[REFUSED]).reason == "collect-failed"
    assert "KeyError" in parse_refusal(headers[REFUSED]).detail
    assert source_events[500].data == b"{}"
    too_large, *_ = await events(Reader({0: 99}))
    assert (dict(too_large.headers)["ce_id"], too_large.data) == (b"cluster/t/1/0", None)


async def test_a_record_on_which_the_reader_fails_once_is_prepared_again_and_read() -> None:
    reader = Reader({0: 1, 999: 1})
    source_events = await events(reader)
    assert [event for event in source_events if REFUSED in dict(event.headers)] == []
    assert reader.prepared == [0, 999]
