"""Reads a source topic and writes events to another topic, by hand with aiokafka, until it is ended.

`python source_loop.py KIND KAFKA SOURCE TARGET PARTITIONS`: KIND is `kafka` (values are JSON objects) or `debezium`. At
least once: it commits after the acknowledgement. No copies are recognized, no minutes or acknowledgements are reported,
and no record is put away: a value that is not JSON ends the program.
"""

import asyncio
import sys
import zlib

import orjson
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

OPERATIONS = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete"}


def plain(record: ConsumerRecord) -> bytes:
    """The value, if it is a JSON object."""
    if not isinstance(orjson.loads(record.value), dict):
        raise TypeError("the value is not a JSON object")
    return record.value


def change(record: ConsumerRecord) -> bytes:
    """The row of a change, and beside it what happened to it."""
    envelope = orjson.loads(record.value)
    source, operation = envelope["source"], OPERATIONS[envelope["op"]]
    row = envelope["before"] if operation == "delete" else envelope["after"]
    key = orjson.loads(record.key)
    told = {
        "op": operation,
        "table": f"{source['schema']}.{source['table']}",
        "key": key,
        "committed": source["ts_ms"],
    }
    return orjson.dumps({**row, **key, "change": told})


async def main(kind: str, kafka: str, source: str, target: str, partitions: str) -> None:
    """Read, write, wait for the acknowledgement, commit."""
    data, count = {"kafka": plain, "debezium": change}[kind], int(partitions)
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka, acks="all", enable_idempotence=True, max_batch_size=128 * 1024
    )
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=kafka,
        group_id=f"{target}-bare",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with producer, consumer:
        while True:
            sending, batches = [], {}
            for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                for record in records:
                    partition = zlib.crc32(record.key) % count
                    event = {"key": record.key, "value": data(record), "headers": headers(record, tp.topic)}
                    batch = batches.setdefault(partition, producer.create_batch())
                    if batch.append(timestamp=None, **event) is None:
                        sending.append(await producer.send_batch(batch, target, partition=partition))
                        batch = batches[partition] = producer.create_batch()
                        batch.append(timestamp=None, **event)
            for partition, batch in batches.items():
                sending.append(await producer.send_batch(batch, target, partition=partition))
            if sending:
                await asyncio.gather(*sending)
                await consumer.commit()


def headers(record: ConsumerRecord, topic: str) -> list[tuple[str, bytes]]:
    """CloudEvents attributes; the id is the place of the record."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"%b/%d/%d" % (topic.encode(), record.partition, record.offset)),
        ("ce_source", b"/bench"),
        ("ce_type", b"made"),
        ("ce_time", b"%d" % record.timestamp),
        ("content-type", b"application/json"),
    ]


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
