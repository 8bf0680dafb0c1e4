"""The Avro schema of a Kafka destination, from its declaration and from the JSON Schema of the pipe. Pure."""

from collections.abc import Mapping
from typing import Any

import orjson

from hifi.avro.derive import derive
from hifi.avro.schema import AvroSchema, InvalidSchema, read_schema
from hifi.pipe.avro_data import changes_after_check, described_data
from hifi.pipe.model import ConnectorDestination, Pipe
from hifi.runtime.errors import Misconfigured
from hifi_kafka.avro.ambiguity import ambiguous_unions
from hifi_kafka.avro.schema_fit import disagreements
from hifi_kafka.declaration import AvroSettings, KafkaDestinationSettings


def declared_schema(settings: AvroSettings) -> AvroSchema:
    """The schema that is declared.

    Raises:
        Misconfigured: there is none, or it is not valid.
    """
    if settings.avro_schema is None:
        raise Misconfigured(
            "declare `schema` in `avro`, or a JSON Schema in `normalize.schema`, of which `hifi apply` derives it"
        )
    try:
        return read_schema(orjson.dumps(settings.avro_schema))
    except InvalidSchema as error:
        raise Misconfigured(f"avro.schema: {error}") from None


def with_avro_schema(
    destination: ConnectorDestination, pipe: Pipe, settings: KafkaDestinationSettings
) -> Mapping[str, Any]:
    """The settings with the schema that the pipe's JSON Schema gives, unless one is declared.

    Raises:
        Misconfigured: the JSON Schema has none.
    """
    avro = settings.avro
    if avro is None or not (avro.derived or avro.avro_schema is None):
        return destination.settings
    schema = derive(described_data(pipe, destination), pipe.pipe)
    avro_settings = {**destination.settings["avro"], "schema": schema, "derived": True}
    return {**destination.settings, "avro": avro_settings}


def check_avro(destination: ConnectorDestination, pipe: Pipe, settings: KafkaDestinationSettings) -> None:
    """Check that each event that the pipe's JSON Schema allows fits the declared schema, as far as types go.

    Raises:
        Misconfigured: one may not fit, or the schema is not valid.
    """
    avro = settings.avro
    if avro is None or avro.avro_schema == "newest":
        return
    if avro.derived or avro.avro_schema is None:
        derive(described_data(pipe, destination), pipe.pipe)
        return
    declared = declared_schema(avro)
    if ambiguous := ambiguous_unions(declared):
        raise Misconfigured("avro.schema has unions that JSON cannot tell apart: " + "; ".join(ambiguous))
    if not isinstance(pipe.normalize.json_schema, dict) or changes_after_check(pipe, destination):
        return  # nothing describes what comes here
    problems = disagreements(
        pipe.normalize.json_schema, pipe.pipe, declared, drop_unknown=avro.unknown_fields == "drop"
    )
    if problems:
        raise Misconfigured("avro.schema and normalize.schema do not agree: " + "; ".join(problems))
