"""The records that give a colour the issued write keys of the other one."""

from typing import Final

from aiokafka import ConsumerRecord, TopicPartition

from hifi.kafka.topic_follower import PartitionFollower
from hifi.kafka.visit import read_all
from hifi.pipe.issued_key import IssuedKey, IssuedKeys, key_revocation
from hifi.record.record import Record
from hifi.runtime.errors import Retryable

_MICROSECONDS_OF_MS: Final = 1000


class KeyStream:
    """The issued write keys of one colour, and when its Kafka stored them. Filled from the topic `write-keys`."""

    def __init__(self) -> None:
        self.keys = IssuedKeys()
        self._began_us: int | None = None
        self._revoked_us: dict[str, int] = {}

    def take(self, record: ConsumerRecord) -> None:
        """Take in a record.

        Raises:
            ValueError: it is not the record of a key.
        """
        stored_us = record.timestamp * _MICROSECONDS_OF_MS
        if self._began_us is None:
            self._began_us = stored_us
        if record.value is None:
            self._revoked_us[(record.key or b"").decode("utf-8", "replace")] = stored_us
        self.keys.take(record.key, record.value, record.offset)

    def began_before(self, at_us: int) -> bool:
        """Whether it has a record from before a time, microseconds since 1970 UTC."""
        return self._began_us is not None and self._began_us < at_us

    def has_revoked(self, key: IssuedKey) -> bool:
        """Whether a record says that a key was revoked after it was issued, as far as those records are still there."""
        return key.id not in self.keys.by_id and self._revoked_us.get(key.id, -1) >= key.at_us

    def in_both(self, key: IssuedKey) -> IssuedKey:
        """A key of the other colour, which expires at the earlier time of both."""
        own_key = self.keys.by_id.get(key.id)
        if own_key is None or own_key.at_us != key.at_us or own_key.expires_us is None:
            return key
        return key.expiring(own_key.expires_us)


async def read_key_stream(bootstrap: str, client_id: str, topic: str) -> KeyStream:
    """The write keys of a colour; waits while its Kafka does not answer.

    Args:
        bootstrap: its Kafka, `HOST:PORT,…`.
        client_id: name in the broker's logs.
        topic: of the write keys.
    """
    key_stream = KeyStream()
    await read_all(PartitionFollower(bootstrap, client_id, {TopicPartition(topic, 0): key_stream.take}))
    return key_stream


def key_changes(target: KeyStream, source: KeyStream, woken_us: int, *, keeps_new: bool) -> list[Record]:
    """The records that give the target the issued write keys of the source.

    A key that the target has revoked stays revoked, unless it was issued again since. A key that the source lacks was
    revoked there: its stream says so, or it began before the target woke and has dropped the record meanwhile.

    Args:
        target: keys of the colour that gets them.
        source: keys of the other one.
        woken_us: when the target was woken last, microseconds since 1970 UTC.
        keeps_new: whether keys stay that were issued in the target since.

    Raises:
        Retryable: the source lacks keys, and its stream is new, as that of a colour that has lost its data.
    """
    wanted_keys = [target.in_both(key) for key in source.keys.by_id.values() if not target.has_revoked(key)]
    missing_keys = [
        key
        for key in target.keys.by_id.values()
        if key.id not in source.keys.by_id and not (keeps_new and key.at_us >= woken_us)
    ]
    if not source.began_before(woken_us):
        unexplained_ids = sorted(key.id for key in missing_keys if not source.has_revoked(key))
        if unexplained_ids:
            raise Retryable(
                "the stream of write keys of the other colour is new, and does not say that "
                f"{', '.join(unexplained_ids)} was revoked, so nothing changes. To let the keys of this colour count, "
                "put the other one to sleep with `hifi colour sleep COLOUR --force`, and wake it"
            )
    changed_keys = [key for key in wanted_keys if target.keys.by_id.get(key.id) != key]
    return [key.record() for key in changed_keys] + [key_revocation(key.id) for key in missing_keys]
