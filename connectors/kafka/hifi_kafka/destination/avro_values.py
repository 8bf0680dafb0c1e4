"""Values in Avro for a topic, with a schema that the first write registers or looks up."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from hifi.avro.registry_client import AVRO, RegistryAccess, RegistryClient, RegistryRefused
from hifi.avro.schema import AvroSchema, InvalidSchema, read_schema
from hifi.runtime.errors import Misconfigured
from hifi_kafka.avro.encode import Encoder
from hifi_kafka.avro.wire_format import header
from hifi_kafka.declaration import AvroSettings
from hifi_kafka.destination.avro_schema import declared_schema


class AvroValues:
    """Encodes the data of events for one topic."""

    def __init__(self, settings: AvroSettings, topic: str, pipe: str) -> None:
        """Check the declared schema; nothing is asked for before `ready`.

        Args:
            settings: of the destination.
            topic: its topic.
            pipe: its pipe.

        Raises:
            Misconfigured: the schema is missing or not valid.
        """
        registry = settings.registry
        access = RegistryAccess(registry.url, registry.user, registry.password_file, registry.ca_file, pipe)
        self._client = RegistryClient(access)
        self._settings = settings
        self._subject = settings.subject or f"{topic}-value"
        self._declared = None if settings.avro_schema == "newest" else declared_schema(settings)
        self._encode: Callable[[Any], bytes] | None = None
        self._asking = asyncio.Lock()

    async def ready(self) -> Callable[[Any], bytes]:
        """The function that makes values of decoded JSON; it raises `Rejected` for data that does not fit the schema.

        Raises:
            Retryable: the registry does not answer, or refuses the user.
            Misconfigured: the registry refuses the schema, or has none.
        """
        async with self._asking:
            if self._encode is None:
                try:
                    self._encode = await self._open()
                except RegistryRefused as error:
                    raise Misconfigured(
                        f"the schema registry refuses the schema of the subject {self._subject}: {error}"
                    ) from error
            return self._encode

    async def _open(self) -> Callable[[Any], bytes]:
        schema, number = await self._registered()
        encode, prefix = Encoder(schema, self._settings.unknown_fields), header(number)
        return lambda value: prefix + encode(value)

    async def _registered(self) -> tuple[AvroSchema, int]:
        """The schema and its id."""
        if self._declared is None:
            newest_schema = await self._client.newest(self._subject)
            if newest_schema.kind != AVRO:
                raise Misconfigured(
                    f"the newest schema of the subject {self._subject} is {newest_schema.kind}, not {AVRO}"
                )
            try:
                return read_schema(newest_schema.text, newest_schema.references), newest_schema.id
            except InvalidSchema as error:
                raise Misconfigured(
                    f"the newest schema of the subject {self._subject} cannot be used: {error}"
                ) from None
        resolve_id = self._client.register if self._settings.registers else self._client.find
        return self._declared, await resolve_id(self._subject, orjson.dumps(self._declared.tree).decode())
