"""Whether the JSON Schema of a pipe describes the data that a destination gets. Pure."""

from typing import Any

from hifi.pipe.model import Destination, Pipe
from hifi.runtime.errors import Misconfigured


def described_data(pipe: Pipe, destination: Destination | None = None) -> dict[str, Any]:
    """The JSON Schema of the data that a destination gets, or of the data as sent.

    Raises:
        Misconfigured: there is none, or something changes the data after it was checked.
    """
    schema = pipe.normalize.json_schema
    if not isinstance(schema, dict):
        raise Misconfigured(
            "the pipe has no JSON Schema (`normalize.schema`), of which an Avro schema could be derived"
        )
    if destination is not None and (changes := changes_after_check(pipe, destination)):
        raise Misconfigured(
            f"{' and '.join(changes)} change the data after `normalize.schema` was checked: declare the Avro schema of"
            " the result"
        )
    return schema


def changes_after_check(pipe: Pipe, destination: Destination) -> list[str]:
    """The parts of a pipe that change the data after its JSON Schema was checked."""
    normalize = pipe.normalize
    changes_by_section = {
        "`normalize.function`": normalize.function is not None,
        "`normalize.fields`": normalize.fields is not None,
        "`normalize.mask`": bool(normalize.mask),
        "`enrich`": bool(pipe.enrich.added()),
        "`transform`": destination.transform is not None,
    }
    return [name for name, changes_data in changes_by_section.items() if changes_data]
