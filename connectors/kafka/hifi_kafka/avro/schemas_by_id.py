"""The schemas of a registry that were asked for, compiled, by id."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from hifi.avro.registry_client import AVRO, RegistryClient, RegistryRefused
from hifi.avro.schema import AvroSchema, InvalidSchema, read_schema
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Rejected, Retryable

_MOST: Final = 1000
"""Schemas that are kept; those that were not used for the longest time are asked for again."""
_NOT_FOUND: Final = 404
_UNKNOWN_S: Final = 10.0
"""A registry is asked again for an id that it does not know after this time, seconds."""

_Answer: TypeAlias = AvroSchema | Rejected


class SchemasById:
    """A bounded copy of a registry, filled before values are decoded. An id never gets another schema."""

    def __init__(self, client: RegistryClient, clock: Callable[[], float] = monotonic_s) -> None:
        """Start empty.

        Args:
            client: of the registry.
            clock: monotonic, seconds.
        """
        self._client = client
        self._clock = clock
        self._answers: OrderedDict[int, tuple[_Answer, float]] = OrderedDict()

    async def load(self, ids: Iterable[int]) -> None:
        """Ask for the ids that are not known.

        Raises:
            Retryable: the registry does not answer; ask again later.
        """
        schema_ids = sorted(set(ids))
        while missing := [schema_id for schema_id in schema_ids if not self._fresh(schema_id)]:
            for schema_id in missing:
                self._answers[schema_id] = await self._ask(schema_id)
                self._answers.move_to_end(schema_id)
            for oldest_id in list(self._answers)[: -max(_MOST, len(schema_ids))]:
                del self._answers[oldest_id]

    def get(self, schema: int) -> AvroSchema:
        """The schema of an id, right after `load`.

        Raises:
            Rejected: the registry has no such Avro schema.
        """
        answer, _ = self._answers[schema]
        self._answers.move_to_end(schema)
        if isinstance(answer, Rejected):
            raise Rejected(answer.reason, answer.detail)
        return answer

    def _fresh(self, schema: int) -> bool:
        answer_until = self._answers.get(schema)
        return answer_until is not None and self._clock() < answer_until[1]

    async def _ask(self, schema: int) -> tuple[_Answer, float]:
        try:
            schema_text = await self._client.schema(schema)
        except RegistryRefused as error:
            if error.code // 100 != _NOT_FOUND:
                raise Retryable(f"the schema registry does not give the schema {schema}: {error}") from error
            detail = f"the schema registry does not have the schema {schema}: {error}"
            return Rejected("unknown-schema", detail), self._clock() + _UNKNOWN_S
        for_ever = float("inf")
        if schema_text.kind != AVRO:
            return Rejected(
                "not-avro", f"the schema {schema} is of the type {schema_text.kind}, not AVRO"
            ), for_ever
        try:
            return read_schema(schema_text.text, schema_text.references), for_ever
        except InvalidSchema as error:
            return Rejected("unusable-schema", f"the schema {schema} cannot be used: {error}"), for_ever
