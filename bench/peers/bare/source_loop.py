"""Reads a source topic and writes events to another topic, by hand with aiokafka, until it is ended.

`python source_loop.py KIND KAFKA SOURCE TARGET PARTITIONS`: KIND is `kafka` (values are JSON objects) or `debezium`. At
least once: it commits after the acknowledgement. Each event has an id, a position and CloudEvents attributes, in the
headers that collect writes. No copies are recognized, an event that is read again gets another accepted time, no
minutes or acknowledgements are reported, and a value that is not JSON ends the program.
"""

import sys
from functools import lru_cache

import orjson
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from envelopes import Envelopes, rfc3339

OPERATIONS = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete"}


def plain(record: ConsumerRecord) -> tuple[bytes, bytes]:
    """The value, if it is a JSON object, and its time."""
    if not isinstance(orjson.loads(record.value), dict):
        raise TypeError("the value is not a JSON object")
    return record.value, rfc3339(record.timestamp)


def change(record: ConsumerRecord) -> tuple[bytes, bytes]:
    """The row of a change and beside it what happened to it, and the time of its commit."""
    envelope = orjson.loads(record.value)["payload"]
    source, operation = envelope["source"], OPERATIONS[envelope["op"]]
    row = envelope["before"] if operation == "delete" else envelope["after"]
    key, committed_time = orjson.loads(record.key), rfc3339(source["ts_ms"])
    change = {
        "op": operation,
        "table": table(source["schema"], source["table"]),
        "key": key,
        "committed": committed_time.decode(),
    }
    return orjson.dumps({**row, **key, "change": change}), committed_time


@lru_cache
def table(schema: str, name: str) -> str:
    """The full name of a table."""
    return f"{schema}.{name}"


async def main(kind: str, kafka: str, source: str, target: str, partitions: str) -> None:
    """Read, write, wait for the acknowledgement, commit."""
    read_record = {"kafka": plain, "debezium": change}[kind]
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka, acks="all", enable_idempotence=True, max_batch_size=512 * 1024
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
        envelopes = Envelopes(producer, target, int(partitions))
        while True:
            for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                location = f"{tp.topic}/{tp.partition}".encode()
                for record in records:
                    data, time = read_record(record)
                    if envelopes.add(record.key, data, location, record.offset, time):
                        await envelopes.send_full()
            if await envelopes.written():
                await consumer.commit()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
