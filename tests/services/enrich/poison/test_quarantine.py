"""Which failures of a query count as those of a record."""

from hifi_enrich.poison.quarantine import is_kafka_failure


def test_a_failure_of_kafka_is_not_taken_for_a_poison_record() -> None:
    assert is_kafka_failure("Caused by: org.apache.kafka.common.errors.TimeoutException: Expiring 3 records")
    assert not is_kafka_failure("org.apache.kafka.common.errors.RecordTooLargeException: 9 bytes")
    assert not is_kafka_failure(
        "java.lang.StackOverflowError at org.apache.kafka.clients.producer.KafkaProducer.send"
    )
