"""The schemas of a registry that were asked for, compiled, by id."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from hifi.avro.registry_client import AVRO, RegistryClient, RegistryRefused
from hifi.avro.schema import AvroSchema, InvalidSchema, read_schema
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Rejected, Retryable

_MOST: Final = 1000
"""Schemas that are kept; those that were not used for the longest time are asked for again."""
_AT_ONCE: Final = 8
"""Schemas that are asked for at the same time."""
_REASONS: Final = {404: "unknown-schema", 422: "unusable-schema"}
"""HTTP status to the reason of a dead letter, of refusals that concern the schema of one id."""
_UNKNOWN_S: Final = 10.0
"""A registry is asked again for an id that it has refused after this time, seconds."""

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
        """Ask once for each id that is not known.

        Raises:
            Retryable: the registry does not answer; ask again later.
        """
        schema_ids = sorted(set(ids))
        answers = {schema_id: self._answers[schema_id] for schema_id in schema_ids if self._fresh(schema_id)}
        missing_ids = [schema_id for schema_id in schema_ids if schema_id not in answers]
        for index in range(0, len(missing_ids), _AT_ONCE):
            asked_ids = missing_ids[index : index + _AT_ONCE]
            asked_answers = await asyncio.gather(*map(self._ask, asked_ids), return_exceptions=True)
            for schema_id, answer in zip(asked_ids, asked_answers, strict=True):
                if not isinstance(answer, BaseException):
                    answers[schema_id] = self._answers[schema_id] = answer
            for answer in asked_answers:
                if isinstance(answer, BaseException):
                    raise answer
        # All of them, whatever other loads have displaced and which answers have expired meanwhile.
        for schema_id, answer in answers.items():
            self._answers[schema_id] = answer
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
            reason = _REASONS.get(error.code // 100)
            if reason is None:
                raise Retryable(f"the schema registry does not give the schema {schema}: {error}") from error
            detail = f"the schema registry does not give the schema {schema}: {error}"
            return Rejected(reason, detail), self._clock() + _UNKNOWN_S
        for_ever = float("inf")
        if schema_text.kind != AVRO:
            return Rejected(
                "not-avro", f"the schema {schema} is of the type {schema_text.kind}, not AVRO"
            ), for_ever
        try:
            return read_schema(schema_text.text, schema_text.references), for_ever
        except InvalidSchema as error:
            return Rejected("unusable-schema", f"the schema {schema} cannot be used: {error}"), for_ever
