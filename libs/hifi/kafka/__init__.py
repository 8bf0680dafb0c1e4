"""The one producer and the one consumer loop of every asyncio service."""

from hifi.kafka.uvloop_patch import apply

apply()
