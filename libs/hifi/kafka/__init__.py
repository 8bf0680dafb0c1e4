"""The producer and the consumer of every asyncio service."""

from hifi.kafka.uvloop_patch import apply

apply()
