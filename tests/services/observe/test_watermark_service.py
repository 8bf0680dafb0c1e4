"""The watermark on a real Kafka: it advances, is held by what is open, and survives a restart of observe."""

from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.support.observe.api_requests import past_minute, until
from tests.support.observe.stream_double import Stream, added, new_stream

from hifi.record.headers import SEQ
from hifi.runtime.clock import now_us
from hifi_observe.watermark.statement import Watermark, iso, microseconds


async def watermark_when(url: str, condition: Any) -> Watermark:
    body = await until(
        url,
        "/api/v1/watermarks/flights",
        lambda body: body["watermarks"] and condition(body["watermarks"][0]),
    )
    watermark: Watermark = body["watermarks"][0]
    return watermark


async def published_records(stream: Stream) -> list[tuple[bytes, bytes]]:
    """Key and value of all records of the topic."""
    partition = TopicPartition(stream.topics.watermarks, 0)
    async with AIOKafkaConsumer(bootstrap_servers=stream.kafka, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end, records = (await consumer.end_offsets([partition]))[partition], []
        while await consumer.position(partition) < end:
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                records += [(record.key, record.value) for record in batch]
        return records


async def test_it_advances_until_an_event_is_open_and_never_goes_back(kafka: str) -> None:
    async with new_stream(kafka) as stream:
        minute = past_minute()
        async with stream.observing() as (_, url):
            await stream.events(0, minute, 20)
            settled_us = now_us()
            watermark = await watermark_when(url, lambda row: microseconds(row["settled_until"]) > settled_us)
            assert (watermark["pipe"], watermark["destination"]) == ("flights", "crm")
            assert watermark["verdict"] == "current"
            assert not watermark["open"]["in_flight"]

            before_us = now_us()
            (lost_event,) = await stream.events(1, minute, 1, lose={"receipts": [0]})
            after_us = now_us()
            watermark = await watermark_when(
                url, lambda row: row["open"]["in_flight"] == 1 and row["verdict"] == "degraded"
            )
            held_until = watermark["settled_until"]
            assert watermark["open"]["services"] == {"egest": 1}
            assert before_us - 2_000_000 < microseconds(held_until) < after_us
            assert any("(1 at egest)" in reason for reason in watermark["because"])
        records = await published_records(stream)
        assert {key for key, _ in records} == {b"flights/crm"}
        async with stream.observing() as (_, url):
            restarted_us = now_us()
            watermark = await watermark_when(
                url, lambda row: row["verdict"] != "unknown" and row["as_of"] > iso(restarted_us)
            )
            assert watermark["settled_until"] == held_until
            assert watermark["open"]["in_flight"] == 1
            await stream.write("receipts", 1, [lost_event | added(b"%d" % now_us())["receipts"]])
            answered_us = now_us()
            await watermark_when(url, lambda row: microseconds(row["settled_until"]) > answered_us)


async def test_the_event_time_covers_all_but_late_events_which_are_named(kafka: str) -> None:
    async with new_stream(kafka) as stream:
        minute, second_us = past_minute(), 1_000_000
        noon_us = minute * 60_000_000
        async with stream.observing() as (_, url):
            await stream.events(
                0, minute, 3, times_us=[noon_us, noon_us + second_us, noon_us + 5 * second_us]
            )
            watermark = await watermark_when(
                url,
                lambda row: row["event_until"] == iso(noon_us + 5 * second_us) and not row["event_because"],
            )
            assert microseconds(watermark["event_as_of"]) >= microseconds(watermark["settled_until"])

            (open_event,) = await stream.events(
                1, minute, 1, times_us=[noon_us + 6 * second_us], lose={"receipts": [0]}
            )
            await watermark_when(url, lambda row: row["event_until"] == iso(noon_us + 6 * second_us))
            (late_event,) = await stream.events(
                0, minute, 1, times_us=[noon_us + 2 * second_us], lose={"receipts": [0]}
            )
            await stream.events(0, minute, 1, times_us=[noon_us + 9 * second_us])
            watermark = await watermark_when(
                url,
                lambda row: (
                    row["event_until"] == iso(noon_us + 6 * second_us)
                    and row["event_late"]["open"]
                    and row["open"]["in_flight"] == 2
                ),
            )
            name = late_event[SEQ].decode()
            assert watermark["event_late"] == {
                "last_1m": 1,
                "by_s": 4.0,
                "open": 1,
                "newest": [{"event": name, "by_s": 4.0}],
            }
        async with stream.observing() as (_, url):
            restarted_us = now_us()
            watermark = await watermark_when(
                url, lambda row: row["verdict"] != "unknown" and row["as_of"] > iso(restarted_us)
            )
            assert watermark["event_until"] == iso(noon_us + 6 * second_us), "as published before"
            assert watermark["event_because"], "what is open was read before the restart"
            receipt = added(b"%d" % now_us())["receipts"]
            await stream.write("receipts", 1, [open_event | receipt])
            await stream.write("receipts", 0, [late_event | receipt])
            await stream.events(1, minute, 1, times_us=[noon_us + 11 * second_us])
            await watermark_when(
                url,
                lambda row: row["event_until"] == iso(noon_us + 11 * second_us) and not row["event_because"],
            )
