"""The one producer and the one consumer loop of every asyncio node."""

from hifi.kafka.closed import mend

mend()
